import struct

import pytest

from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import (
    PROMPT,
    SAMPLED,
    STOP,
    Counters,
    Episode,
    Score,
    Trajectory,
)
from training_gym.spec.messages import assistant, user
from training_gym.spec.tasks import Task


@pytest.fixture
def run(tmp_path):
    manifest = Manifest(run_id="r1", created_at=1.0, run={"model": "tiny"}, name="haiku")
    return RunDirectory.create(tmp_path / "runs" / "r1", manifest)


def _single(value):
    """The value at single precision."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _trajectory(prompt=(1, 2, 3), answer=(70000, 5, 4294967295), versions=(3, 3, 4), **fields):
    return Trajectory(
        token_ids=(*prompt, *answer),
        flags=(*[PROMPT] * len(prompt), *[SAMPLED] * (len(answer) - 1), SAMPLED | STOP),
        logprobs=(*[0.0] * len(prompt), *[_single(-0.1 * n) for n in range(1, len(answer) + 1)]),
        versions=(*[-1] * len(prompt), *versions),
        prompt_length=len(prompt),
        **fields,
    )


def _episode(member=0, *, group="g", batch=1, step=None, trajectories=None, **fields):
    return Episode(
        **{
            "id": f"{group}-{member}",
            "task": Task(id="t", prompt=(user("Why?"),), answer="42", split_key="t"),
            "group": group,
            "member": member,
            "messages": (user("Why?"), assistant("yes")),
            "trajectories": (_trajectory(),) if trajectories is None else trajectories,
            "score": Score(value=0.5, components={"a": 0.25}),
            "counters": Counters(batch=batch, optimizer_step=step, policy_version=3),
            **fields,
        }
    )


@pytest.fixture
def make_trajectory():
    return _trajectory


@pytest.fixture
def make_episode():
    return _episode
