"""TRL's side: its GRPOTrainer at its best settings, stopped when its time is up."""

import json
import os
import sys
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", TRL_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

import torch
from datasets import Dataset
from tasks import rows, score
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

TASK = os.environ.get("RACE_TASK", "arithmetic")


class Clock(TrainerCallback):
    """Seconds and mean reward of each step; the end when the time is up."""

    def __init__(self, seconds):
        self.left, self.curve, self.rewards = seconds, [], []

    def on_step_begin(self, *_, **__):
        self.started = time.perf_counter()
        self.rewards.clear()

    def on_step_end(self, args, state, control, **_):
        passed = time.perf_counter() - self.started
        self.curve.append([passed, sum(self.rewards) / len(self.rewards)])
        self.left -= passed
        control.should_training_stop = self.left <= 0


def main(start: str, seed: int, seconds: float, shape: dict) -> None:
    torch.set_num_threads(shape["threads"])
    data = rows(TASK)
    if not shape["raw"]:
        data = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in data]
    clock = Clock(seconds)

    def reward(completions, answer, **_):
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        found = [score(TASK, text, right) for text, right in zip(texts, answer, strict=True)]
        clock.rewards += found
        return found

    episodes = shape["prompts"] * shape["group"]
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=min(shape["peer_micro_batch"], episodes),
        gradient_accumulation_steps=max(1, episodes // shape["peer_micro_batch"]),
        num_generations=shape["group"],
        max_completion_length=shape["tokens"],
        max_steps=100_000,
        learning_rate=shape["learning_rate"],
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        loss_type="grpo",
        beta=0.0,
        temperature=1.0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=start,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(data),
        callbacks=[clock],
    )
    trainer.train()
    sys.__stdout__.write(json.dumps(clock.curve) + "\n")


if __name__ == "__main__":
    sys.stdout = sys.stderr
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]))
