"""Metrics by column: what one curve needs lies together, already reduced.

A *lane* holds the metric records of one writer in one attempt, in the order of their rows. Each
metric, and each thing an axis is made of, is a column of a lane, cut into chunks of 4,096 points;
whole chunks carry minimum, maximum and mean of every 16 and every 256 points. New rows wait in
`recent` until 512 of them can be folded into chunks at once, so that a live run does not rewrite a
chunk of every metric at every step.
"""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from training_gym.records.index.decode import as_number

CHUNK = 4096
FOLD_AT = 512
"""Rows that wait before they are folded."""
AXES = ("~seq", "~time", "~batch", "~optimizer_step", "~policy_version", "~tokens")
"""Columns that no metric can be called: `~tokens` counts sampled tokens of the lane so far."""
TOKENS = ("sampled_tokens", "target_tokens")
"""Metrics that say how many tokens a record is about; the first that is there counts."""
_ENVELOPE = ("seq", "time", "batch", "optimizer_step", "policy_version")

Row = tuple[tuple[str, ...], Sequence[float]]
"""Names and values of one record, those of `AXES` first."""


@dataclass
class _Lane:
    """A lane while rows are added to it."""

    id: int
    num_rows: int
    last_seq: int
    tokens: float
    rows: list[Row] = field(default_factory=list)
    shapes: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """Names of a record's metrics, and the same behind those of `AXES`."""


def take_in(connection: sqlite3.Connection, records: Iterable[dict[str, Any]]) -> None:
    """Add metric records; one that is found again counts once."""
    lanes: dict[tuple[str, int], _Lane] = {}
    for record in records:
        values = record.get("values")
        if not isinstance(values, dict):
            continue
        key = (str(record["writer"]), int(record["attempt"]))
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = _lane(connection, *key)
        if record["seq"] > lane.last_seq:
            lane.last_seq = record["seq"]
            lane.rows.append(_row(record, values, lane))
    for lane in lanes.values():
        _add(connection, lane)


def ids_of(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    """Numbers of these column names, given out where they have none."""
    found: dict[str, int] = dict(connection.execute("SELECT name, id FROM names"))
    for name in names:
        if name not in found:
            made = connection.execute("INSERT INTO names (name) VALUES (?)", (name,))
            found[name] = int(made.lastrowid or 0)
    return found


def _lane(connection: sqlite3.Connection, writer: str, attempt: int) -> _Lane:
    row = connection.execute(
        "SELECT id, num_rows, last_seq, tokens FROM lanes WHERE writer = ? AND attempt = ?",
        (writer, attempt),
    ).fetchone()
    if row is not None:
        return _Lane(*row)
    made = connection.execute(
        "INSERT INTO lanes (writer, attempt, num_rows, last_seq, tokens) VALUES (?, ?, 0, -1, 0)",
        (writer, attempt),
    )
    return _Lane(int(made.lastrowid or 0), 0, -1, 0.0)


def _row(record: dict[str, Any], values: dict[str, Any], lane: _Lane) -> Row:
    for name in TOKENS:
        if name in values:
            number = as_number(values[name])
            lane.tokens += number if math.isfinite(number) else 0.0
            break
    envelope = [_float(record.get(name)) for name in _ENVELOPE]
    own = tuple(values)
    names = lane.shapes.get(own)
    if names is None:
        names = lane.shapes[own] = (*AXES, *own)
    return names, [*envelope, lane.tokens, *values.values()]


def _float(value: Any) -> float:
    return math.nan if value is None else as_number(value)


def _add(connection: sqlite3.Connection, lane: _Lane) -> None:
    """Keep the rows, folded where enough have come together."""
    waiting = connection.execute(
        "SELECT COUNT(*) FROM recent WHERE lane = ?", (lane.id,)
    ).fetchone()[0]
    if waiting + len(lane.rows) >= FOLD_AT:
        first, rows = lane.num_rows - waiting, _waiting(connection, lane.id) + lane.rows
        _fold(connection, lane.id, first, rows)
        connection.execute("DELETE FROM recent WHERE lane = ?", (lane.id,))
    else:
        names = ids_of(connection, {name for row in lane.rows for name in row[0]})
        connection.executemany(
            "INSERT INTO recent (lane, row, names, data) VALUES (?, ?, ?, ?)",
            [
                (
                    lane.id,
                    lane.num_rows + index,
                    array("i", [names[name] for name in row_names]).tobytes(),
                    doubles(values).tobytes(),
                )
                for index, (row_names, values) in enumerate(lane.rows)
            ],
        )
    connection.execute(
        "UPDATE lanes SET num_rows = ?, last_seq = ?, tokens = ? WHERE id = ?",
        (lane.num_rows + len(lane.rows), lane.last_seq, lane.tokens, lane.id),
    )


def _waiting(connection: sqlite3.Connection, lane: int) -> list[Row]:
    """The rows in `recent`, oldest first, which always follow those in chunks."""
    by_id: dict[int, str] = dict(connection.execute("SELECT id, name FROM names"))
    return [
        (tuple(by_id[number] for number in array("i", names)), array("d", data))
        for names, data in connection.execute(
            "SELECT names, data FROM recent WHERE lane = ? ORDER BY row", (lane,)
        )
    ]


def _fold(connection: sqlite3.Connection, lane: int, first: int, rows: list[Row]) -> None:
    """Turn rows into columns and append each to its chunks."""
    by_names: dict[tuple[str, ...], tuple[list[int], list[Sequence[float]]]] = {}
    for number, (names, values) in enumerate(rows, first):
        numbers, kept = by_names.setdefault(names, ([], []))
        numbers.append(number)
        kept.append(values)
    found: dict[str, list[tuple[Sequence[int], array[float]]]] = {}
    for names, (listed, kept) in by_names.items():
        rows_of = _as_range(listed)
        for name, column in zip(names, zip(*kept, strict=True), strict=True):
            found.setdefault(name, []).append((rows_of, doubles(column)))
    ids = ids_of(connection, found)
    for name, parts in found.items():
        at, data = parts[0] if len(parts) == 1 else _merged(parts)
        _append(connection, lane, ids[name], at, data)


def _as_range(numbers: Sequence[int]) -> Sequence[int]:
    """The same as a range where there is no gap, as there mostly is none."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return numbers


def _joined(before: Sequence[int], after: Sequence[int]) -> Sequence[int]:
    if isinstance(before, range) and isinstance(after, range) and before.stop == after.start:
        return range(before.start, after.stop)
    return [*before, *after]


def _merged(
    parts: list[tuple[Sequence[int], array[float]]],
) -> tuple[Sequence[int], array[float]]:
    """A metric that came in records of different shapes, by row."""
    pairs = sorted(pair for numbers, data in parts for pair in zip(numbers, data, strict=True))
    return [number for number, _ in pairs], array("d", [value for _, value in pairs])


def _append(
    connection: sqlite3.Connection,
    lane: int,
    name: int,
    numbers: Sequence[int],
    data: array[float],
) -> None:
    last = connection.execute(
        "SELECT number, count, first_row, row_numbers, data FROM chunks"
        " WHERE name = ? AND lane = ? ORDER BY number DESC LIMIT 1",
        (name, lane),
    ).fetchone()
    chunk = 0
    if last is not None:
        chunk = last[0]
        if last[1] == CHUNK:
            chunk += 1
        else:
            numbers = _joined(row_numbers(last[2], last[1], last[3]), numbers)
            data = array("d", last[4]) + data
    for start in range(0, len(data), CHUNK):
        rows, part = numbers[start : start + CHUNK], data[start : start + CHUNK]
        whole = len(part) == CHUNK
        connection.execute(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                lane,
                name,
                chunk,
                len(part),
                rows[0],
                rollup(part, 256).tobytes() if whole else None,
                rollup(part, 16).tobytes() if whole else None,
                _stored_rows(rows),
                part.tobytes(),
            ),
        )
        chunk += 1


def _stored_rows(rows: Sequence[int]) -> bytes | None:
    """None where rows follow each other without a gap, as they mostly do."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return None
    return array("q", rows).tobytes()


def row_numbers(first: int, count: int, stored: bytes | None) -> Sequence[int]:
    """Rows of a chunk's points."""
    return range(first, first + count) if stored is None else array("q", stored)


def rollup(data: Sequence[float], size: int) -> array[float]:
    """Minima, maxima and means of every `size` values, one after another.

    Means are of the finite values; NaN where there is none. Extremes leave out NaN only.
    """
    if len(data) % size == 0 and math.isfinite(sum(data)):
        parts = list(zip(*[iter(data)] * size, strict=True))
        means = (total / size for total in map(sum, parts))
        return array("d", map(min, parts)) + array("d", map(max, parts)) + array("d", means)
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
            mean.append(math.fsum(finite) / len(finite) if finite else math.nan)
    return low + high + mean


def doubles(values: Iterable[Any]) -> array[float]:
    """Recorded numbers as doubles; `"NaN"` and its kin are what they say, the rest is NaN."""
    kept = values if isinstance(values, Sequence) else list(values)
    try:
        return array("d", kept)
    except (TypeError, OverflowError):
        return array("d", [as_number(value) for value in kept])
