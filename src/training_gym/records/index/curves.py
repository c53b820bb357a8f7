"""Curves: a metric over an axis, over all attempts, with no more points than a screen can show."""

from __future__ import annotations

import math
import re
import sqlite3
from array import array
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import compress

from training_gym.records.index.axes import COLUMN_OF, Axes
from training_gym.records.index.column_reading import (
    Lane,
    column,
    lanes,
    last_value,
    name_id,
    reduced,
    size_of,
)
from training_gym.records.index.columns import EXACT_POINTS
from training_gym.records.index.headline import headline
from training_gym.records.index.points import Points, chained, interleaved, thinned, within
from training_gym.records.index.series_values import MetricName, Series, SeriesQuery


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
    axes = Axes(connection, query.x)
    made = (_curve(connection, axes, run_id, name, query) for name in known)
    return tuple(series for series in made if series is not None)


def literal(name: str) -> str:
    """A pattern that fits this name alone."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _curve(
    connection: sqlite3.Connection, axes: Axes, run_id: str, name: str, query: SeriesQuery
) -> Series | None:
    stretches: dict[int, list[Points]] = {}
    for lane in axes.lanes:
        points = _points(connection, axes, lane, name, query)
        if points is not None:
            stretches.setdefault(lane.attempt, []).append(points)
    if not stretches:
        return None
    merged = [
        parts[0] if len(parts) == 1 else interleaved(parts)
        for _, parts in sorted(stretches.items())
    ]
    whole = within(chained(merged), query)
    shown = thinned(whole, query.max_points)
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
    connection: sqlite3.Connection, axes: Axes, lane: Lane, name: str, query: SeriesQuery
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
    axes: Axes,
    lane: Lane,
    name: str,
    query: SeriesQuery,
    size: int,
) -> Points:
    by = 256 if size // 256 >= query.max_points else 16
    values = reduced(connection, lane.id, name, by)
    x = reduced(connection, lane.id, COLUMN_OF[axes.axis], by).high
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
