"""Generated programming tasks: the model writes a function, a grader runs it in a sandbox.

    training-gym train code_cases.py

The expected values never enter the sandbox, so the only way to the reward is to solve the task.
Linux only; `training-gym harbor verify` and docs/graders.md show what else can be graded.
"""

import random

from training_gym import AdamW, Recipe, TrainConfig
from training_gym.rewards.graders import FunctionCases

WORDS = {
    "adds {n} to x": lambda x, n: x + n,
    "multiplies x by {n}": lambda x, n: x * n,
    "subtracts {n} from x": lambda x, n: x - n,
    "returns the remainder of x divided by {n}": lambda x, n: x % n,
}


def rows(count, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        words, solve = rng.choice(list(WORDS.items()))
        n = rng.randint(2, 99)
        cases = [{"args": [x], "returns": solve(x, n)} for x in rng.sample(range(1000), 4)]
        yield {
            "prompt": f"Write a Python function f(x) that {words.format(n=n)}. Only the code.",
            "answer": cases,
        }


config = TrainConfig(
    name="code-cases",
    model="smollm2-135m",
    dataset=list(rows(200)),
    reward=FunctionCases(function="f", partial="share", timeout_s=5),
    recipe=Recipe(
        num_steps=20,
        prompts_per_batch=4,
        group_size=8,
        max_response_tokens=64,
        optimizer=AdamW(learning_rate=1e-5),
    ),
)

if __name__ == "__main__":
    config.train()
