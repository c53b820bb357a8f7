"""A policy learns arithmetic: imitation of a careless teacher, then GRPO on what is right.

Tasks are the 400 sums of two numbers without carry whose digits are at most 4 (`23+14=`), a fifth
of them held out: never imitated, never played in training. The teacher writes one answer in three
as it should be and slips a place in the others (`370` for 37), so its student, started from random
weights, is right on a third of the sums it samples. The reward is exact match and nothing else.
"""

import random

import pytest

from training_gym import GRPO, SFT, AdamW, Eval, LocalEngine, Recipe, TrainConfig
from training_gym.rewards.library import ExactMatch
from training_gym.spec.datasets import RowsDataset
from training_gym.testing.tiny import tiny_model

SLIPS = 0.67
"""Share of the teacher's answers that are ten times too large."""


def sums():
    """Rows of training and of evaluation, the same at every seed."""
    rows = [
        {"prompt": f"{a}{b}+{c}{d}=", "answer": f"{a + c}{b + d}"}
        for a in range(1, 5)
        for b in range(5)
        for c in range(1, 5)
        for d in range(5)
    ]
    random.Random(7).shuffle(rows)
    return rows[80:], rows[:80]


def careless(rows, seed):
    """Each row twice, as the teacher answers it."""
    draw = random.Random(seed)
    return [{**row, "answer": row["answer"] + "0" * (draw.random() < SLIPS)} for row in rows * 2]


def raw(rows):
    return RowsDataset.of(rows, input_format="raw")


def define(model, seed, rows, held_out, **settings):
    start = settings.pop("resume_from_checkpoint", None)
    return TrainConfig(
        name="arithmetic",
        model=model,
        dataset=raw(rows),
        reward=ExactMatch(),
        evals=[Eval(name="held_out", dataset=raw(held_out), samples=4)],
        resume_from_checkpoint=start,
        recipe=Recipe(
            **settings,
            max_response_tokens=5,
            seed=seed,
            engine=LocalEngine(device="cpu", threads=1, slots=64),
        ),
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def test_grpo_surpasses_the_teacher(here, request):
    seed = 0
    model = tiny_model(here / "model", seed=seed, num_kv_heads=4)
    train, held_out = sums()
    imitation = define(
        model,
        seed,
        careless(train, seed),
        held_out,
        algorithm=SFT(),
        num_steps=300,
        prompts_per_batch=64,
        group_size=1,
        optimizer=AdamW(learning_rate=3e-3, schedule="cosine", warmup_steps=10),
    ).train()
    assert imitation.result.final["mean"] < 0.4

    practice = define(
        model,
        seed,
        train,
        held_out,
        resume_from_checkpoint=imitation.result.checkpoint.path,
        algorithm=GRPO(),
        num_steps=60,
        prompts_per_batch=16,
        group_size=8,
        optimizer=AdamW(learning_rate=5e-4, schedule="linear"),
    ).train()
    result = practice.result
    # The second run begins with exactly what the first one ended with.
    assert result.baseline["mean"] == imitation.result.final["mean"]
    assert result.baseline["mean"] < 0.4
    assert result.final["mean"] > 0.9
    assert result.difference["low"] > 0.4
    assert result.steps == 60
