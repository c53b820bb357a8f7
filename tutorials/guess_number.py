"""Several turns: the model guesses a number and is told higher or lower.

    training-gym train guess_number.py

`reset` begins a game, `step` answers one guess. Each guess is worth how near it comes and a find
the guesses that are left, so that the model learns to heed what it is told. docs/environments.md
shows the other ways to write an environment.
"""

import re

from training_gym import AdamW, Eval, Recipe, TrainConfig
from training_gym.environments.turn_based import Turn, TurnBased

ASK = "I think of a number from 1 to 10. Guess it. Answer with one number only."


class GuessNumber(TurnBased):
    """The policy guesses; the environment answers higher or lower."""

    max_turns = 2

    def reset(self, task, ctx):
        return {"number": task.answer, "left": self.max_turns}, ""

    def step(self, state, text, ctx):
        state["left"] -= 1
        found = re.search(r"\d+", text)
        if found is None:
            return Turn(done=True)
        guess, number = int(found.group()[:6]), state["number"]
        if guess == number:
            return Turn(reward=1.0 + state["left"], done=True)
        near = max(0.0, 0.5 - abs(guess - number) / 10)
        hint = "Higher." if guess < number else "Lower."
        return Turn(f"{hint} Guess again.", reward=near, done=state["left"] == 0)


def rows(numbers):
    return [{"prompt": ASK, "answer": number} for number in numbers]


config = TrainConfig(
    name="guess-number",
    model="smollm2-135m",
    dataset=rows(range(1, 11)),
    environment=GuessNumber(),
    recipe=Recipe(
        num_steps=8,
        prompts_per_batch=4,
        group_size=4,
        max_response_tokens=5,
        optimizer=AdamW(learning_rate=7e-5),
    ),
    evals=[Eval(name="all_numbers", dataset=rows(range(10, 0, -1)), samples=3)],
)

if __name__ == "__main__":
    config.train()
