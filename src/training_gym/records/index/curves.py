"""Curves: a metric over an axis, over all attempts, with no more points than a screen can show."""

from __future__ import annotations

import math
import re
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import compress

from training_gym.records.index.column_reading import (
    Lane,
    column,
    lanes,
    last_value,
    name_id,
    reduced,
    size_of,
)
from training_gym.records.index.headline import headline
from training_gym.records.index.series_values import Axis, MetricName, Series, SeriesQuery

EXACT_POINTS = 65_536
"""Longer curves are drawn from rollups, where nothing of their lane is hidden."""
_COLUMN_OF: dict[Axis, str] = {
    "step": "~optimizer_step",
    "batch": "~batch",
    "time": "~time",
    "tokens": "~tokens",
    "cost": "cost",
}


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


def metric_names(connection: sqlite3.Connection) -> tuple[MetricName, ...]:
    """Every metric with how often it was recorded and what it was last."""
    counts = _counts(connection)
    all_lanes = lanes(connection)
    found = []
    for name, identity in connection.execute("SELECT name, id FROM names ORDER BY name"):
        if name.startswith("~") or not counts.get(identity):
            continue
        value, batch = _newest(connection, all_lanes, identity)
        found.append(MetricName(name=name, count=counts[identity], last=value, last_batch=batch))
    return tuple(found)


def headline_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The run's metrics to show first."""
    return headline([name for (name,) in connection.execute("SELECT name FROM names")])


def newest(connection: sqlite3.Connection, name: str) -> tuple[float | None, int | None]:
    """Newest value of a metric that shows, and its batch."""
    identity = name_id(connection, name)
    return (None, None) if identity is None else _newest(connection, lanes(connection), identity)


def curves(connection: sqlite3.Connection, run_id: str, query: SeriesQuery) -> tuple[Series, ...]:
    """The run's curves that the query asks for, by name."""
    known = [
        str(name)
        for (name,) in connection.execute("SELECT name FROM names ORDER BY name")
        if not name.startswith("~") and any(_fits(name, pattern) for pattern in query.names)
    ]
    axes = _Axes(connection, query.x)
    made = (_curve(connection, axes, run_id, name, query) for name in known)
    return tuple(series for series in made if series is not None)


def literal(name: str) -> str:
    """A pattern that fits this name alone."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


class _Axes:
    """The x of every row of every lane, read once for many curves."""

    def __init__(self, connection: sqlite3.Connection, axis: Axis) -> None:
        self._connection = connection
        self.axis = axis
        self.lanes = lanes(connection)
        self._rows: dict[int, array[float]] = {}
        self._batches: dict[int, array[float]] = {}
        self._shifts: dict[int, float] = {}
        self._tokens_lane = {
            lane.attempt: lane for lane in reversed(self.lanes) if self._counts_tokens(lane)
        }

    def x(self, lane: Lane) -> array[float]:
        """Axis values by row; NaN where a row has none."""
        if lane.id not in self._rows:
            own = self._source(lane)
            values = column(self._connection, own.id, _COLUMN_OF[self.axis])
            data = values.data
            if self.axis == "cost":
                data = _spread(values.rows, data, lane.num_rows)
            elif own is not lane:
                data = self._through_batches(lane, own, data)
            shift = self.shift(lane)
            self._rows[lane.id] = array("d", [v + shift for v in data]) if shift else data
        return self._rows[lane.id]

    def batches(self, lane: Lane) -> array[float]:
        """Batch by row; NaN where a row has none."""
        if lane.id not in self._batches:
            self._batches[lane.id] = column(self._connection, lane.id, "~batch").data
        return self._batches[lane.id]

    def shift(self, lane: Lane) -> float:
        """What is added to the axis so that attempts follow each other."""
        if self.axis not in ("time", "tokens"):
            return 0.0
        if lane.attempt not in self._shifts:
            before = [one for one in self.lanes if one.attempt < lane.attempt]
            end = 0.0
            for attempt in sorted({one.attempt for one in before}):
                end = max(end, self._end(attempt, before))
            start = self._begin(lane.attempt) if self.axis == "time" else 0.0
            self._shifts[lane.attempt] = end - start
        return self._shifts[lane.attempt]

    def _end(self, attempt: int, before: list[Lane]) -> float:
        """Axis value of the last row of an attempt that shows."""
        ends = []
        for lane in before:
            if lane.attempt == attempt and self._source(lane) is lane:
                shown = array("d", compress(self.x(lane), _mask(lane)))
                ends.append(max(shown, default=0.0))
        return max(ends, default=0.0)

    def _begin(self, attempt: int) -> float:
        """When an attempt began to train: by its own word, else its first record."""
        row = self._connection.execute(
            "SELECT min(time) FROM records WHERE stream = 'events' AND kind = 'attempt_started'"
            " AND attempt = ?",
            (attempt,),
        ).fetchone()
        if row[0] is not None:
            return float(row[0])
        firsts = [
            column(self._connection, lane.id, "~time").data[:1]
            for lane in self.lanes
            if lane.attempt == attempt
        ]
        return min((first[0] for first in firsts if first), default=0.0)

    def _source(self, lane: Lane) -> Lane:
        """The lane that counts tokens for this one."""
        if self.axis != "tokens" or self._counts_tokens(lane):
            return lane
        return self._tokens_lane.get(lane.attempt, lane)

    def _counts_tokens(self, lane: Lane) -> bool:
        row = self._connection.execute(
            "SELECT tokens > 0 FROM lanes WHERE id = ?", (lane.id,)
        ).fetchone()
        return bool(row[0])

    def _through_batches(self, lane: Lane, own: Lane, data: array[float]) -> array[float]:
        """Tokens that had been sampled by the batch of each row."""
        known = self.batches(own)
        return array(
            "d",
            [
                data[place - 1] if (place := bisect_right(known, batch)) else 0.0
                for batch in self.batches(lane)
            ],
        )


def _curve(
    connection: sqlite3.Connection, axes: _Axes, run_id: str, name: str, query: SeriesQuery
) -> Series | None:
    stretches: dict[int, list[Points]] = {}
    for lane in axes.lanes:
        points = _points(connection, axes, lane, name, query)
        if points is not None:
            stretches.setdefault(lane.attempt, []).append(points)
    if not stretches:
        return None
    merged = [
        parts[0] if len(parts) == 1 else _interleaved(parts)
        for _, parts in sorted(stretches.items())
    ]
    whole = _within(_chained(merged), query)
    shown = _thinned(whole, query.max_points)
    return Series(
        run_id=run_id,
        name=name,
        axis=query.x,
        x=tuple(shown.x),
        mean=tuple(shown.mean),
        low=None if shown.raw else tuple(shown.low),
        high=None if shown.raw else tuple(shown.high),
        batch=tuple(-1 if value != value else int(value) for value in shown.batch),
        count=whole.count,
    )


def _points(
    connection: sqlite3.Connection, axes: _Axes, lane: Lane, name: str, query: SeriesQuery
) -> Points | None:
    """A lane's share of a curve; None: it has none."""
    identity = name_id(connection, name)
    assert identity is not None, "the name was just read"
    size, dense = size_of(connection, lane.id, identity)
    ranged = query.start is not None or query.stop is not None
    if size > EXACT_POINTS and dense and lane.kept is None and axes.axis != "cost" and not ranged:
        return _rolled_up(connection, axes, lane, name, query, size)
    found = column(connection, lane.id, name)
    if not found.data:
        return None
    x, batch = axes.x(lane), axes.batches(lane)
    if len(found.data) == len(x):  # the metric is in every record
        xs, batches, data = x, batch, found.data
    else:
        xs = array("d", [x[row] for row in found.rows])
        batches, data = array("d", [batch[row] for row in found.rows]), found.data
    keep = _keep(lane, found.rows, xs)
    if keep is not None:
        xs, batches, data = (array("d", compress(c, keep)) for c in (xs, batches, data))
    return Points(xs, data, data, data, batches, len(data)) if data else None


def _rolled_up(
    connection: sqlite3.Connection,
    axes: _Axes,
    lane: Lane,
    name: str,
    query: SeriesQuery,
    size: int,
) -> Points:
    by = 256 if size // 256 >= query.max_points else 16
    values = reduced(connection, lane.id, name, by)
    x = reduced(connection, lane.id, _COLUMN_OF[axes.axis], by).high
    batch = reduced(connection, lane.id, "~batch", by).high
    shift = axes.shift(lane)
    count = min(len(values.mean), len(x))
    xs = array("d", [v + shift for v in x[:count]]) if shift else x[:count]
    return Points(
        xs, values.mean[:count], values.low[:count], values.high[:count], batch[:count], size
    )


def _keep(lane: Lane, rows: Sequence[int], x: array[float]) -> list[bool] | None:
    """Which points show; None: all of them. A point without an x cannot be drawn."""
    holes = not math.isfinite(sum(x))
    if lane.kept is None and not holes:
        return None
    kept = lane.kept or b""
    return [
        value == value and (row >= len(kept) or bool(kept[row]))
        for row, value in zip(rows, x, strict=True)
    ]


def _mask(lane: Lane) -> list[bool]:
    kept = lane.kept or b""
    return [row >= len(kept) or bool(kept[row]) for row in range(lane.num_rows)]


def _spread(rows: Sequence[int], data: array[float], num_rows: int) -> array[float]:
    """A metric as an axis: its newest value at each row."""
    spread, value, place = array("d"), math.nan, 0
    for row in range(num_rows):
        if place < len(rows) and rows[place] == row:
            value, place = data[place], place + 1
        spread.append(value)
    return spread


def _chained(parts: list[Points]) -> Points:
    """Attempts one after another."""
    if len(parts) == 1:
        return parts[0]
    x, mean, low, high, batch = (array("d") for _ in range(5))
    for part in parts:
        x, mean, low, high = x + part.x, mean + part.mean, low + part.low, high + part.high
        batch += part.batch
    return Points(x, mean, low, high, batch, sum(part.count for part in parts))


def _interleaved(parts: list[Points]) -> Points:
    """Several writers' points of one metric in one attempt, by x."""
    rows = sorted(
        row
        for part in parts
        for row in zip(part.x, part.mean, part.low, part.high, part.batch, strict=True)
    )
    x, mean, low, high, batch = (array("d", values) for values in zip(*rows, strict=True))
    return Points(x, mean, low, high, batch, sum(part.count for part in parts))


def _within(points: Points, query: SeriesQuery) -> Points:
    start = 0 if query.start is None else bisect_left(points.x, query.start)
    stop = len(points.x) if query.stop is None else bisect_right(points.x, query.stop)
    if start == 0 and stop == len(points.x):
        return points
    # A range is never read from rollups, so each of these is one recorded point.
    return points.part(start, max(start, stop))


def _thinned(points: Points, limit: int) -> Points:
    """At most `limit` points, by merging neighbours."""
    count = len(points.x)
    if count <= limit:
        return points
    step = -(-count // limit)
    x, mean, low, high, batch = (array("d") for _ in range(5))
    for start in range(0, count, step):
        stop = min(start + step, count)
        x.append(points.x[stop - 1])
        batch.append(points.batch[stop - 1])
        part = points.mean[start:stop]
        total = sum(part)
        if math.isfinite(total):
            mean.append(total / (stop - start))
            low.append(min(points.low[start:stop]))
            high.append(max(points.high[start:stop]))
        else:
            finite = [value for value in part if math.isfinite(value)]
            mean.append(math.fsum(finite) / len(finite) if finite else math.nan)
            low.append(min((v for v in points.low[start:stop] if v == v), default=math.nan))
            high.append(max((v for v in points.high[start:stop] if v == v), default=math.nan))
    return Points(x, mean, low, high, batch, points.count)


def _counts(connection: sqlite3.Connection) -> dict[int, int]:
    counts: dict[int, int] = dict(
        connection.execute("SELECT name, sum(count) FROM chunks GROUP BY name")
    )
    shapes: dict[bytes, int] = dict(
        connection.execute("SELECT names, count(*) FROM recent GROUP BY names")
    )
    for names, count in shapes.items():
        for identity in array("i", names):
            counts[identity] = counts.get(identity, 0) + count
    return counts


def _newest(
    connection: sqlite3.Connection, all_lanes: list[Lane], identity: int
) -> tuple[float | None, int | None]:
    best: tuple[int, float] | None = None
    answer: tuple[float | None, int | None] = (None, None)
    batch_id = name_id(connection, "~batch")
    for lane in reversed(all_lanes):
        if best is not None and lane.attempt < best[0]:
            break
        try:
            value, row = last_value(connection, lane, identity)
        except LookupError:
            continue
        batch = _at(connection, lane.id, batch_id, row)
        if best is None or (lane.attempt, batch) > best:
            best = (lane.attempt, batch)
            answer = value, None if batch < 0 else int(batch)
    return answer


def _at(connection: sqlite3.Connection, lane: int, identity: int | None, row: int) -> float:
    """A column without gaps at one row; -1.0 where it is NaN."""
    found = connection.execute(
        "SELECT first_row, data FROM chunks WHERE name = ? AND lane = ? AND first_row <= ?"
        " AND first_row + count > ?",
        (identity, lane, row, row),
    ).fetchone()
    if found is not None:
        value = memoryview(found[1]).cast("d")[row - found[0]]
    else:
        names, data = connection.execute(
            "SELECT names, data FROM recent WHERE lane = ? AND row = ?", (lane, row)
        ).fetchone()
        value = memoryview(data).cast("d")[array("i", names).index(identity)]
    return -1.0 if value != value else float(value)
