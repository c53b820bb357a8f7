"""An agent with tools: the model must call a calculator and then say what it found.

    training-gym train calculator_agent.py

Plain Python functions are the tools. SmolLM2's chat template knows none, so they are offered in
plain text (`dialect="text"`); with a model that was taught to call tools, leave that out.
"""

import random
import re

from training_gym import AdamW, Eval, Recipe, TrainConfig
from training_gym.environments.tools import ToolEnvironment


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


SHOWN = [
    {"role": "user", "content": "What is 312 + 45?"},
    {
        "role": "assistant",
        "content": '<tool_call>{"name": "add", "arguments": {"a": 312, "b": 45}}</tool_call>',
    },
    {"role": "user", "content": "<tool_result>357</tool_result>"},
    {"role": "assistant", "content": "357"},
]


def rows(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        sign, solve = rng.choice([("+", add), ("times", multiply)])
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        ask = {"role": "user", "content": f"What is {a} {sign} {b}?"}
        yield {"prompt": [*SHOWN, ask], "answer": solve(a, b)}


def correct(episode):
    """1 for the right number at the end; 0.2 for having called a tool that worked."""
    said = re.findall(r"\d+", episode.completion.replace(",", ""))
    results = [m.text for m in episode.messages[5:] if m.text.startswith("<tool_result>")]
    worked = any("error" not in text for text in results)
    right = bool(said) and int(said[-1][:12]) == episode.answer
    return {"reward": right + 0.2 * worked, "right": float(right), "called": float(worked)}


config = TrainConfig(
    name="calculator-agent",
    model="smollm2-135m",
    dataset=list(rows(200, seed=0)),
    environment=ToolEnvironment(tools=[add, multiply], dialect="text", max_turns=3),
    reward=correct,
    recipe=Recipe(
        num_steps=10,
        prompts_per_batch=6,
        group_size=8,
        max_response_tokens=40,
        optimizer=AdamW(learning_rate=3e-5),
    ),
    evals=[Eval(name="unseen", dataset=list(rows(30, seed=1)), samples=2)],
)

if __name__ == "__main__":
    config.train()
