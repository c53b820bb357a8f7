"""Programming in turns: write a function, see the examples fail, write it again.

    training-gym train coding_agent.py

The model tries its code in a sandbox; what it leaves there is graded in a fresh one, with cases it
never saw, so the only way to the reward is to solve the task. Linux only.
"""

import random

from training_gym import AdamW, Eval, Recipe, TrainConfig
from training_gym.environments.coding import CodingEnvironment
from training_gym.rewards.graders import FunctionCases

KINDS = {
    "adds {n} to x": lambda x, n: x + n,
    "multiplies x by {n}": lambda x, n: x * n,
    "subtracts {n} from x": lambda x, n: x - n,
    "returns the remainder of x divided by {n}": lambda x, n: x % n,
    "returns the larger one of x and {n}": max,
}

SHOWN = [
    {"role": "system", "content": "You write the Python function f(x) that is asked for."},
    {"role": "user", "content": "Write a Python function f(x) that doubles x."},
    {"role": "assistant", "content": "```python\ndef f(x):\n    return x * 2\n```"},
]


def rows(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        words, solve = rng.choice(list(KINDS.items()))
        n = rng.randint(2, 99)
        first, *hidden = rng.sample(range(1000), 5)
        asked = f"Write a Python function f(x) that {words.format(n=n)}."
        yield {
            "prompt": [*SHOWN, {"role": "user", "content": asked}],
            "answer": [{"args": [x], "returns": solve(x, n)} for x in hidden],
            "examples": f"assert f({first}) == {solve(first, n)}, f({first})",
        }


config = TrainConfig(
    name="coding-agent",
    model="smollm2-135m",
    dataset=list(rows(200, seed=0)),
    environment=CodingEnvironment(attempts=2),
    reward=FunctionCases(function="f", timeout_s=5),
    recipe=Recipe(
        num_steps=8,
        prompts_per_batch=4,
        group_size=6,
        max_response_tokens=40,
        optimizer=AdamW(learning_rate=5e-5),
    ),
    evals=[Eval(name="unseen", dataset=list(rows(40, seed=1)))],
)

if __name__ == "__main__":
    config.train()
