"""A policy learns arithmetic: imitation of a careless teacher, then GRPO on what is right.

Tasks are the 400 sums of two numbers without carry whose digits are at most 4 (`23+14=`), a fifth
of them held out: never imitated, never played in training. The teacher writes two answers in seven
as they should be and slips a place in the others (`370` for 37), so its student, which starts from
random weights, is right on a third of the sums it samples. The reward is exact match alone.
"""

import random

import pytest

from training_gym import GRPO, SFT, AdamW, Eval, LocalEngine, Recipe, TrainConfig
from training_gym.rewards.library import ExactMatch
from training_gym.spec.datasets import RowsDataset
from training_gym.testing.tiny import tiny_model

SLIPS = 0.72
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


def train(model, seed, rows, held_out, start=None, **recipe):
    """Run in a process of its own, as a user's would, and wait for the result."""
    config = TrainConfig(
        name="arithmetic",
        model=model,
        dataset=raw(rows),
        reward=ExactMatch(),
        evals=[Eval(name="held_out", dataset=raw(held_out), samples=4)],
        resume_from_checkpoint=start,
        recipe=Recipe(
            **recipe,
            max_response_tokens=5,
            seed=seed,
            engine=LocalEngine(device="cpu", threads=1, slots=64),
        ),
    )
    return config.train().result


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
)
def test_grpo_surpasses_the_teacher(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = tiny_model(tmp_path / "model", seed=seed, num_kv_heads=4)
    rows, held_out = sums()
    imitated = train(
        model,
        seed,
        careless(rows, seed),
        held_out,
        algorithm=SFT(),
        num_steps=450,
        prompts_per_batch=64,
        group_size=1,
        optimizer=AdamW(learning_rate=3e-3, schedule="cosine", warmup_steps=10),
    )
    practised = train(
        model,
        seed,
        rows,
        held_out,
        start=imitated.checkpoint.path,
        algorithm=GRPO(),
        num_steps=70,
        prompts_per_batch=16,
        group_size=8,
        optimizer=AdamW(learning_rate=5e-4, schedule="linear"),
    )
    # The second run begins with exactly what the first one ended with.
    assert practised.baseline == imitated.final
    assert imitated.baseline["mean"] < 0.05
    assert practised.baseline["mean"] < 0.4
    assert practised.final["mean"] > 0.9
    assert practised.difference["low"] > 0.4
