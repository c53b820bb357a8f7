import itertools

import pytest

from training_gym.records.health.history import Clock, Facts, History, Step
from training_gym.records.health.plays import Play, Plays

_numbers = itertools.count()


def _play(reward=0.5, *, group="g", length=20, text=None, status="finished", attempts=1, **more):
    number = next(_numbers)
    return Play(
        **{
            "id": f"{group}.{number}",
            "group": group,
            "task": group,
            "reward": reward,
            "components": {},
            "length": length,
            "status": status,
            "attempts": attempts,
            "text": number if text is None else text,
            "repetitive": False,
            "tampering": "",
            **more,
        }
    )


def _plays(*rewards_of_groups, **more):
    """One step's plays: a sequence of rewards for each group."""
    return Plays(
        tuple(
            _play(reward, group=f"g{group}", **more)
            for group, rewards in enumerate(rewards_of_groups)
            for reward in rewards
        )
    )


def _history(metrics=(), plays=(), **more):
    """A history of steps from 1 on; `metrics` and `plays` have an entry for each."""
    count = max(len(metrics), len(plays))
    steps = [
        Step(
            number=at + 1,
            time=100.0 * (at + 1),
            metrics=metrics[at] if metrics else {},
            environments={"env": plays[at]} if plays else {},
        )
        for at in range(count)
    ]
    return History(
        early=tuple(steps[:12]),
        recent=tuple(steps[-50:]),
        **{"clock": Clock(0.0), "facts": Facts(), **more},
    )


@pytest.fixture
def play():
    return _play


@pytest.fixture
def plays():
    return _plays


@pytest.fixture
def history():
    return _history
