"""Who was at work when: busy time of the accelerator, and who kept it waiting otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

BUSY = ("generation", "training")
"""Components that use the accelerator."""
BLAMED = ("sync", "disk", "data", "reward", "environment")
"""Who is to blame for idle time, where several are at work: the first of these."""


@dataclass(frozen=True)
class Interval:
    """A piece of work, on one host's monotonic clock."""

    component: str
    start: float
    end: float


def occupation(
    intervals: Sequence[Interval], start: float, end: float
) -> tuple[float | None, dict[str, float]]:
    """Seconds in [start, end] with accelerator work (None: none was recorded), and the blame.

    The blame holds, by component, the seconds in which it was at work and the accelerator was not;
    `unknown` are those in which nobody said to be.
    """
    if end <= start or not any(interval.component in BUSY for interval in intervals):
        return None, {}
    changes: list[tuple[float, int, str]] = []
    for interval in intervals:
        first, last = max(interval.start, start), min(interval.end, end)
        if last > first:
            changes += [(first, 1, interval.component), (last, -1, interval.component)]
    changes.sort()
    busy, at = 0.0, start
    blame: dict[str, float] = {}
    active: Counter[str] = Counter()
    for moment, change, component in [*changes, (end, 0, "")]:
        passed, at = moment - at, moment
        if any(active[name] for name in BUSY):
            busy += passed
        elif passed > 0:
            name = next((name for name in BLAMED if active[name]), "unknown")
            blame[name] = blame.get(name, 0.0) + passed
        active[component] += change
    return busy, blame
