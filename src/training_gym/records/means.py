"""Means of whatever numbers a record may hold: their sum can lie beyond what a float can."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one finite value."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return statistics.mean(values)  # exact, and a hundred times slower


def deviation_of(values: Sequence[float]) -> float:
    """Standard deviation of a sample of at least two finite values; infinite where no float is."""
    centre = mean_of(values)
    distances = [abs(value - centre) for value in values]
    largest = max(distances)
    if largest in (0.0, math.inf):
        return largest
    squares = math.fsum((distance / largest) ** 2 for distance in distances)
    return largest * math.sqrt(squares / (len(values) - 1))
