"""An environment of your own: several turns, free-form code. Here the model guesses a number.

    training-gym train custom_environment.py

The environment talks to the policy as often as it likes and says how the episode ended. It also
judges: the earlier the number is found, the higher the score.
"""

import re

from training_gym import AdamW, Message, Outcome, Recipe, Score, TrainConfig

TURNS = 5


class GuessNumber:
    """The policy guesses; the environment answers higher or lower."""

    async def run(self, task, policy, ctx):
        messages = list(task.prompt)
        nearest = 1.0
        for turn in range(TURNS):
            reply = await policy.chat(messages)
            found = re.search(r"\d+", reply.text)
            if found is None:
                return Outcome(status="model_failed", reason="no number", score=Score(value=0.0))
            guess = int(found.group()[:6])
            if guess == task.answer:
                return Outcome(score=Score(value=2.0 - turn / TURNS))
            nearest = min(nearest, abs(guess - task.answer) / 20)
            hint = "Higher." if guess < task.answer else "Lower."
            messages += [reply, Message(role="user", content=f"{hint} Guess again.")]
        return Outcome(reason="not found", score=Score(value=0.5 * (1 - nearest)))


def rows(numbers):
    prompt = "I think of a number from 1 to 20. Guess it. Answer with one number only."
    return [{"prompt": prompt, "answer": number, "number": number} for number in numbers]


config = TrainConfig(
    name="guess-number",
    model="smollm2-135m",
    dataset=rows(range(1, 21)),
    environment=GuessNumber(),
    recipe=Recipe(
        num_steps=20,
        prompts_per_batch=4,
        group_size=8,
        max_response_tokens=8,
        optimizer=AdamW(learning_rate=1e-5),
    ),
)

if __name__ == "__main__":
    config.train()
