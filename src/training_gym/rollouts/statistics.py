"""Means, intervals and paired differences over tasks."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from training_gym.spec.settings import Settings

RESAMPLES = 10_000


class Interval(Settings):
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    count: int
    """Tasks it rests on."""


def bootstrap_mean(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean (Efron 1979), 10,000 resamples of whole tasks."""
    count = len(values)
    if count == 0:
        return Interval(mean=math.nan, low=math.nan, high=math.nan, count=0)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean=mean, low=mean, high=mean, count=1)
    draw = random.Random(seed)
    means = sorted(math.fsum(draw.choices(values, k=count)) / count for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return Interval(mean=mean, low=low, high=high, count=count)


def paired_difference(
    before: Mapping[str, float], after: Mapping[str, float], *, seed: int = 0
) -> Interval:
    """Mean of after - before over the tasks that both have, with its interval."""
    shared = sorted(before.keys() & after.keys())
    return bootstrap_mean([after[task] - before[task] for task in shared], seed=seed)
