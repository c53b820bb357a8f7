"""Two evaluations of the same tasks, compared task by task."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from training_gym.records.means import mean_of

RESAMPLES = 2000
FEWEST_TASKS = 6
"""Fewer that all change in one way may do so by chance: of five, every sixteenth time."""


@dataclass(frozen=True)
class Difference:
    """The mean of after - before, with its 95 % interval."""

    mean: float
    low: float
    high: float
    count: int
    """Tasks it rests on."""

    @property
    def rose(self) -> bool:
        """Whether it lies above zero, beyond chance."""
        return self.low > 0 and self.count >= FEWEST_TASKS

    @property
    def fell(self) -> bool:
        """Whether it lies below zero, beyond chance."""
        return self.high < 0 and self.count >= FEWEST_TASKS

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.mean:+.3g} (95 % interval {self.low:+.3g} to {self.high:+.3g})"


def paired_difference(before: Mapping[str, float], after: Mapping[str, float]) -> Difference | None:
    """Over the tasks that both have; None where they share none.

    Percentile bootstrap over tasks (Efron 1979), 2,000 resamples with a fixed seed.
    """
    shared = sorted(before.keys() & after.keys())
    found = tuple(after[task] - before[task] for task in shared)
    return _bootstrap(found) if found else None


@lru_cache(maxsize=64)
def _bootstrap(differences: tuple[float, ...]) -> Difference:
    """Kept, because rules ask for the same two evaluations after every step."""
    count = len(differences)
    draw = random.Random(0)
    means = sorted(sum(draw.choices(differences, k=count)) / count for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return Difference(mean_of(differences), low, high, count)
