"""Reading columns back: whole, or reduced to what was rolled up."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from training_gym.records.index.columns import row_numbers
from training_gym.records.index.rollups import rollup


@dataclass(frozen=True)
class Lane:
    """Metric records of one writer in one attempt."""

    id: int
    writer: str
    attempt: int
    num_rows: int
    kept: bytes | None
    """Nonzero for each row that shows; None: all do. Rows added since show."""


@dataclass(frozen=True)
class Column:
    """Values and the rows they belong to; both have the same length."""

    rows: Sequence[int]
    data: array[float]


@dataclass(frozen=True)
class Reduced:
    """Minimum, maximum and mean of every `size` values of a column without gaps."""

    size: int
    low: array[float]
    high: array[float]
    mean: array[float]


def lanes(connection: sqlite3.Connection) -> list[Lane]:
    """All lanes, by attempt."""
    return [
        Lane(*row)
        for row in connection.execute(
            "SELECT id, writer, attempt, num_rows, kept FROM lanes ORDER BY attempt, id"
        )
    ]


def column(connection: sqlite3.Connection, lane: int, name: str) -> Column:
    """All of a column, chunks and what waits to be folded; empty where the lane has none."""
    identity = name_id(connection, name)
    rows: list[Sequence[int]] = []
    data = array("d")
    if identity is None:
        return Column((), data)
    for first, count, stored, values in connection.execute(
        "SELECT first_row, count, row_numbers, data FROM chunks"
        " WHERE name = ? AND lane = ? ORDER BY number",
        (identity, lane),
    ):
        rows.append(row_numbers(first, count, stored))
        data.frombytes(values)
    waiting = _waiting(connection, lane, identity)
    if waiting:
        rows.append([row for row, _ in waiting])
        data.extend(value for _, value in waiting)
    return Column(_joined(rows), data)


def size_of(connection: sqlite3.Connection, lane: int, identity: int) -> tuple[int, bool]:
    """Points in a column's chunks, and whether they begin at row 0 and leave out none."""
    count, first, gaps = connection.execute(
        "SELECT sum(count), min(first_row), count(row_numbers) FROM chunks"
        " WHERE name = ? AND lane = ?",
        (identity, lane),
    ).fetchone()
    return int(count or 0), first == 0 and not gaps


def reduced(connection: sqlite3.Connection, lane: int, name: str, size: int) -> Reduced:
    """A column's rollup; `size` is 16 or 256. For columns without gaps."""
    low, high, mean = array("d"), array("d"), array("d")
    field = {16: "by_16", 256: "by_256"}[size]
    tail = array("d")
    for stored, rest in connection.execute(
        f"SELECT {field}, CASE WHEN {field} IS NULL THEN data END FROM chunks"
        " WHERE name = ? AND lane = ? ORDER BY number",
        (name_id(connection, name), lane),
    ):
        if stored is None:
            tail.frombytes(rest)
            continue
        values = array("d", stored)
        third = len(values) // 3
        low += values[:third]
        high += values[third : 2 * third]
        mean += values[2 * third :]
    tail.extend(value for _, value in _waiting(connection, lane, name_id(connection, name) or -1))
    values = rollup(tail, size)
    third = len(values) // 3
    return Reduced(
        size,
        low + values[:third],
        high + values[third : 2 * third],
        mean + values[2 * third :],
    )


def last_value(connection: sqlite3.Connection, lane: Lane, identity: int) -> tuple[float, int]:
    """Newest value of a column that shows, and its row; raises `LookupError` if there is none."""
    for row, value in _waiting_rows(connection, lane.id, identity, "DESC"):
        if shows(lane, row):
            return value, row
    for first, count, stored, data in connection.execute(
        "SELECT first_row, count, row_numbers, data FROM chunks"
        " WHERE name = ? AND lane = ? ORDER BY number DESC",
        (identity, lane.id),
    ):
        values = array("d", data)
        for place in range(count - 1, -1, -1):
            row = row_numbers(first, count, stored)[place]
            if shows(lane, row):
                return values[place], row
    raise LookupError


def shows(lane: Lane, row: int) -> bool:
    """Whether no resume made the row void."""
    return lane.kept is None or row >= len(lane.kept) or bool(lane.kept[row])


def name_id(connection: sqlite3.Connection, name: str) -> int | None:
    """Number of a column's name; None: no lane has it."""
    row = connection.execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def _waiting(connection: sqlite3.Connection, lane: int, identity: int) -> list[tuple[int, float]]:
    """The column's points among the rows not yet folded."""
    return list(_waiting_rows(connection, lane, identity, "ASC"))


def _waiting_rows(
    connection: sqlite3.Connection, lane: int, identity: int, order: Literal["ASC", "DESC"]
) -> Iterator[tuple[int, float]]:
    """The same one by one: who wants the newest reads no other."""
    known: dict[bytes, int] = {}
    for row, names, data in connection.execute(
        f"SELECT row, names, data FROM recent WHERE lane = ? ORDER BY row {order}", (lane,)
    ):
        place = known.get(names)
        if place is None:
            numbers = array("i", names)
            place = known[names] = numbers.index(identity) if identity in numbers else -1
        if place >= 0:
            yield row, memoryview(data).cast("d")[place]


def _joined(parts: list[Sequence[int]]) -> Sequence[int]:
    if not parts:
        return ()
    whole = sum(len(part) for part in parts)
    if parts[0][0] + whole - 1 == parts[-1][-1]:  # rows grow: nothing is left out
        return range(parts[0][0], parts[0][0] + whole)
    return [row for part in parts for row in part]
