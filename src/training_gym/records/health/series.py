"""The few statistics that rules need, on short sequences, with the standard library alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MAD_TO_DEVIATION = 1.4826
"""The median absolute deviation times this estimates a normal standard deviation."""


def robust_score(value: float, others: Sequence[float], least_scale: float) -> float:
    """Distance of `value` from the median of `others`, in robust standard deviations.

    The scale is at least `least_scale` and a tenth of the median, so that a sequence that hardly
    varies does not make everything an outlier.
    """
    middle = statistics.median(others)
    spread = statistics.median(abs(other - middle) for other in others)
    scale = max(MAD_TO_DEVIATION * spread, 0.1 * abs(middle), least_scale)
    return (value - middle) / scale


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            found[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return found


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's coefficient; None where either does not vary."""
    if len(first) < 3:
        return None
    try:
        return statistics.correlation(ranks(first), ranks(second))
    except statistics.StatisticsError:
        return None


def trend(values: Sequence[float]) -> float:
    """Rank correlation of values with their order: 1 rises always, -1 falls always."""
    found = rank_correlation(values, range(len(values)))
    return 0.0 if found is None else found


def slope_score(values: Sequence[float]) -> float:
    """Least-squares slope over its standard error; 0.0 for fewer than four values."""
    count = len(values)
    if count < 4:
        return 0.0
    largest = max(map(abs, values))
    if largest > 1e100:  # whose square no float holds; the score is the same at any scale
        values = [value / largest for value in values]
    slope, level = statistics.linear_regression(range(count), values)
    rest = math.fsum((value - level - slope * at) ** 2 for at, value in enumerate(values))
    spread = (count**3 - count) / 12
    error = math.sqrt(rest / (count - 2) / spread)
    if error == 0:
        return 0.0 if slope == 0 else math.copysign(math.inf, slope)
    return slope / error
