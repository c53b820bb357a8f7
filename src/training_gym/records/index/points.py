"""Stretches of a curve: joined, interleaved, cut to a range and thinned to what a screen shows."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from training_gym.records.index.series_values import SeriesQuery
from training_gym.records.means import mean_of

Part = tuple[float, ...]


@dataclass(frozen=True)
class Points:
    """A stretch of a curve; all sequences have the same length."""

    x: array[float]
    mean: array[float]
    low: array[float]
    high: array[float]
    batch: array[float]
    count: int
    """Recorded points that these stand for."""

    @property
    def raw(self) -> bool:
        """Whether nothing was merged."""
        return self.count == len(self.x)

    def part(self, start: int, stop: int) -> Points:
        """Some of them."""
        x, mean, low, high, batch = (
            column[start:stop] for column in (self.x, self.mean, self.low, self.high, self.batch)
        )
        return Points(x, mean, low, high, batch, stop - start)


def chained(parts: list[Points]) -> Points:
    """Attempts one after another."""
    if len(parts) == 1:
        return parts[0]
    x, mean, low, high, batch = (array("d") for _ in range(5))
    for part in parts:
        x, mean, low, high = x + part.x, mean + part.mean, low + part.low, high + part.high
        batch += part.batch
    return Points(x, mean, low, high, batch, sum(part.count for part in parts))


def interleaved(parts: list[Points]) -> Points:
    """Several writers' points of one metric in one attempt, by x."""
    rows = sorted(
        row
        for part in parts
        for row in zip(part.x, part.mean, part.low, part.high, part.batch, strict=True)
    )
    x, mean, low, high, batch = (array("d", values) for values in zip(*rows, strict=True))
    return Points(x, mean, low, high, batch, sum(part.count for part in parts))


def within(points: Points, query: SeriesQuery) -> Points:
    """What lies in the range that the query asks for."""
    start = 0 if query.start is None else bisect_left(points.x, query.start)
    stop = len(points.x) if query.stop is None else bisect_right(points.x, query.stop)
    if start == 0 and stop == len(points.x):
        return points
    # A range is never read from rollups, so each of these is one recorded point.
    return points.part(start, max(start, stop))


def thinned(points: Points, limit: int) -> Points:
    """At most `limit` points, by merging neighbours."""
    count = len(points.x)
    if count <= limit:
        return points
    step = -(-count // limit)
    parts = _parts(points.mean, step)
    plain = math.isfinite(sum(points.mean))
    lowest, highest = (min, max) if plain else (_lowest, _highest)
    return Points(
        x=_every(points.x, step),
        mean=array("d", map(_mean, parts)),
        low=array("d", map(lowest, _of(points, points.low, parts, step))),
        high=array("d", map(highest, _of(points, points.high, parts, step))),
        batch=_every(points.batch, step),
        count=points.count,
    )


def _of(points: Points, values: array[float], parts: list[Part], step: int) -> list[Part]:
    """The parts of extremes, which those of the mean are where nothing was merged yet."""
    return parts if values is points.mean else _parts(values, step)


def _parts(values: array[float], size: int) -> list[Part]:
    """Every `size` of them; what is left is the last."""
    whole = len(values) - len(values) % size
    parts = list(zip(*[iter(values[:whole])] * size, strict=True))
    return [*parts, tuple(values[whole:])] if whole < len(values) else parts


def _every(values: array[float], size: int) -> array[float]:
    """The last of each part."""
    found = values[size - 1 :: size]
    if len(values) % size:
        found.append(values[-1])
    return found


def _mean(part: Part) -> float:
    total = sum(part)
    if math.isfinite(total):
        return total / len(part)
    finite = [value for value in part if math.isfinite(value)]
    return mean_of(finite) if finite else math.nan


def _lowest(part: Part) -> float:
    return min((value for value in part if value == value), default=math.nan)


def _highest(part: Part) -> float:
    return max((value for value in part if value == value), default=math.nan)
