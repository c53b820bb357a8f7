r"""Boxed mathematics on a jsonl file: one problem a line, the answer checked as mathematics.

    training-gym train math_jsonl.py

`\frac{3}{4}`, `0.75` and `3/4` are the same answer: the reward compares values, not texts.
"""

from training_gym import AdamW, FileDataset, Recipe, TrainConfig
from training_gym.rewards.library import BoxedMath

problems = FileDataset(
    path="data/math.jsonl",
    input_column="problem",
    output_column="answer",
    template="{input}\nThink briefly, then give the final answer as \\boxed{}.",
    eval_fraction=0.25,
)

config = TrainConfig(
    name="boxed-mathematics",
    model="smollm2-135m",
    dataset=problems,
    reward=BoxedMath(),
    recipe=Recipe(
        num_steps=20,
        prompts_per_batch=4,
        group_size=8,
        max_response_tokens=96,
        optimizer=AdamW(learning_rate=1e-5),
    ),
)

if __name__ == "__main__":
    config.train()
