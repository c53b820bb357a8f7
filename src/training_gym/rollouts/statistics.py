"""Means, intervals and paired differences over tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from training_gym.spec.errors import EngineError
from training_gym.spec.settings import Settings

RESAMPLES = 10_000

_DRAWN_AT_ONCE = 1 << 20


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
    low, high = _percentiles(values, seed)
    return Interval(mean=mean, low=low, high=high, count=count)


def paired_difference(
    before: Mapping[str, float], after: Mapping[str, float], *, seed: int = 0
) -> Interval:
    """Mean of after - before over the tasks that both have, with its interval."""
    shared = sorted(before.keys() & after.keys())
    return bootstrap_mean([after[task] - before[task] for task in shared], seed=seed)


def _percentiles(values: Sequence[float], seed: int) -> tuple[float, float]:
    """The middle 95 % of the resampled means."""
    try:
        import numpy
    except ImportError as error:
        raise EngineError(
            "intervals need numpy, which is not installed", fix="pip install 'training-gym[local]'"
        ) from error
    source = numpy.asarray(values, dtype=numpy.float64)
    draw = numpy.random.default_rng(seed)
    rows = max(_DRAWN_AT_ONCE // len(source), 1)
    means = [
        source[draw.integers(len(source), size=(min(rows, RESAMPLES - start), len(source)))].mean(1)
        for start in range(0, RESAMPLES, rows)
    ]
    low, high = numpy.quantile(numpy.concatenate(means), (0.025, 0.975))
    return float(low), float(high)
