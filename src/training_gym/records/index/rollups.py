"""Curves in short: minimum, maximum and mean of every 16 and every 256 values.

Each is one array: all minima, then all maxima, then all means. Means are of the finite values, NaN
where there is none; extremes leave out NaN only.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

from training_gym.records.means import mean_of


def rollups(data: Sequence[float]) -> tuple[array[float], array[float]]:
    """By 256 and by 16 of values whose number 256 divides."""
    if not math.isfinite(sum(data)):
        return rollup(data, 256), rollup(data, 16)
    parts = _parts(data)
    low, high, total = list(map(min, parts)), list(map(max, parts)), list(map(sum, parts))
    return (
        _joined(
            map(min, _parts(low)),
            map(max, _parts(high)),
            (part / 256 for part in map(sum, _parts(total))),
        ),
        _joined(low, high, (part / 16 for part in total)),
    )


def rollup(data: Sequence[float], size: int) -> array[float]:
    """By any size; the last part may be shorter."""
    low, high, mean = array("d"), array("d"), array("d")
    for start in range(0, len(data), size):
        part = data[start : start + size]
        total = sum(part)
        if math.isfinite(total):
            low.append(min(part))
            high.append(max(part))
            mean.append(total / len(part))
        else:
            numbers = [value for value in part if value == value]
            finite = [value for value in numbers if math.isfinite(value)]
            low.append(min(numbers, default=math.nan))
            high.append(max(numbers, default=math.nan))
            mean.append(mean_of(finite) if finite else math.nan)
    return low + high + mean


def _parts(values: Sequence[float]) -> list[tuple[float, ...]]:
    """Every 16 of them."""
    return list(zip(*[iter(values)] * 16, strict=True))


def _joined(*parts: Iterable[float]) -> array[float]:
    whole = array("d")
    for part in parts:
        whole.extend(part)
    return whole
