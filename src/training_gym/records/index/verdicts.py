"""The verdict of a run in a list, by the rules of `records.health`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.records.health.acknowledgement import apply
from training_gym.records.health.alerts import Verdict, alerts_from
from training_gym.records.health.verdict import Standing, verdict_of

COMPARED = 5
"""Steps at either end whose mean rewards the verdict compares, as in `health.assessment`."""


@dataclass(frozen=True)
class Summary:
    """What a verdict needs besides alerts."""

    status: str
    steps: int = 0
    rewards: Sequence[float] = ()
    """Mean reward of each batch, oldest first."""
    reason: str = ""
    """Why the run ended, if it has."""


def verdict(
    summary: Summary, alerts: Iterable[Mapping[str, Any]], annotations: Iterable[Mapping[str, Any]]
) -> Verdict:
    """From records of `alerts` and `annotations`, oldest first."""
    first, now = summary.rewards[:COMPARED], summary.rewards[-COMPARED:]
    standing = Standing(
        status=summary.status,
        steps=summary.steps,
        reward_first=sum(first) / len(first) if first else None,
        reward_now=sum(now) / len(now) if now else None,
        reason=summary.reason,
    )
    return verdict_of(apply(alerts_from(alerts), annotations), standing)
