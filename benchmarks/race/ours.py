"""Our side: a run as a user would start it, stopped when its time is up."""

import json
import os
import sys
import time

from tasks import rows, score

from training_gym import GRPO, AdamW, LocalEngine, Recipe, TrainConfig
from training_gym.spec.datasets import RowsDataset

TASK = os.environ.get("RACE_TASK", "arithmetic")


def reward(episode):
    """The race's score."""
    return score(TASK, episode.completion, str(episode.answer))


def main(start: str, seed: int, seconds: float, shape: dict) -> None:
    config = TrainConfig(
        name=f"race-{TASK}",
        model=start,
        dataset=RowsDataset.of(rows(TASK), input_format="raw" if shape["raw"] else "text"),
        reward=reward,
        recipe=Recipe(
            algorithm=GRPO(),
            num_steps=100_000,
            prompts_per_batch=shape["prompts"],
            group_size=shape["group"],
            max_response_tokens=shape["tokens"],
            optimizer=AdamW(learning_rate=shape["learning_rate"]),
            checkpoints={"every": None},
            seed=seed,
            engine=LocalEngine(device="cpu", threads=shape["threads"]),
        ),
    )
    run = config.launch()
    while sum(step["step_seconds"] for step in run.metrics()) < seconds and not run.result:
        time.sleep(0.5)
    run.stop()
    run.wait()
    curve = [[step["step_seconds"], step["reward_mean"]] for step in run.metrics()]
    print(json.dumps(curve))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]))
