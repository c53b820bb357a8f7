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


def shown(ask, call, result):
    """A question, answered with the calculator."""
    return [
        {"role": "user", "content": ask},
        {"role": "assistant", "content": f"<tool_call>{call}</tool_call>"},
        {"role": "user", "content": f"<tool_result>{result}</tool_result>"},
        {"role": "assistant", "content": f"The answer is {result}."},
    ]


SHOWN = [
    *shown("What is 31 + 45?", '{"name": "add", "arguments": {"a": 31, "b": 45}}', 76),
    *shown("What is 12 * 50?", '{"name": "multiply", "arguments": {"a": 12, "b": 50}}', 600),
]


def rows(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        sign, solve = rng.choice([("+", add), ("*", multiply)])
        a, b = rng.randint(11, 99), rng.randint(11, 99)
        ask = {"role": "user", "content": f"What is {a} {sign} {b}?"}
        yield {"prompt": [*SHOWN, ask], "answer": solve(a, b)}


def correct(episode):
    """1 for the right number at the end; a little for a call that worked, and one that helped."""
    told = [m.text for m in episode.messages[len(SHOWN) + 2 :] if m.role == "user"]
    called = any("error" not in text for text in told)
    found = any(f">{episode.answer}<" in text for text in told)
    said = re.findall(r"\d+", episode.completion)
    right = bool(said) and said[-1] == str(episode.answer)
    total = right + 0.2 * called + 0.3 * found
    return {"reward": total, "right": float(right), "called": float(called), "found": float(found)}


config = TrainConfig(
    name="calculator-agent",
    model="smollm2-135m",
    dataset=list(rows(200, seed=0)),
    environment=ToolEnvironment(tools=[add, multiply], dialect="text", max_turns=2),
    reward=correct,
    recipe=Recipe(
        num_steps=8,
        prompts_per_batch=4,
        group_size=5,
        max_response_tokens=44,
        optimizer=AdamW(learning_rate=5e-5),
    ),
    evals=[Eval(name="unseen", dataset=list(rows(24, seed=1)))],
)

if __name__ == "__main__":
    config.train()
