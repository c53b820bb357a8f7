"""Supervised fine-tuning on a csv file: the model imitates the answer column.

    training-gym train sft_csv.py

The held-out fifth is answered before and after and scored by exact match.
"""

from training_gym import SFT, AdamW, FileDataset, Recipe, Sampling, TrainConfig
from training_gym.rewards.library import ExactMatch

dates = FileDataset(
    path="data/sft.csv",
    input_column="question",
    output_column="answer",
    eval_fraction=0.2,
)

config = TrainConfig(
    name="dates",
    model="smollm2-135m",
    dataset=dates,
    reward=ExactMatch(),
    recipe=Recipe(
        algorithm=SFT(),
        num_steps=30,
        prompts_per_batch=16,
        group_size=1,
        max_response_tokens=16,
        sampling=Sampling(temperature=0),
        optimizer=AdamW(learning_rate=5e-5, schedule="cosine", warmup_steps=3),
    ),
)

if __name__ == "__main__":
    config.train()
