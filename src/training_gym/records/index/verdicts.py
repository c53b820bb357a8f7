"""The verdict of a run in a list, by the rules of `records.health`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.records.index.run_values import Level


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
) -> tuple[Level, str]:
    """Level and sentence, from records of `alerts` and `annotations`, oldest first."""
    if summary.status in ("failed", "lost"):
        return "critical", f"{summary.status.capitalize()}: {summary.reason or 'no reason known'}"
    worst = None
    for alert in alerts:
        if alert.get("state", "open") != "resolved":
            worst = alert
    if worst is not None:
        level: Level = "critical" if worst.get("severity") == "critical" else "degraded"
        return level, f"{level.capitalize()}: {worst.get('message', '')}"
    if summary.steps < 3:
        return "too_early", f"Too early to tell: {summary.steps} steps"
    return "healthy", "Healthy"
