"""Metrics by column: what one curve needs lies together, already reduced.

A *lane* holds the metric records of one writer in one attempt, in the order of their rows. Each
metric, and each thing an axis is made of, is a column of a lane, cut into chunks of 4,096 points;
whole chunks of a long column carry minimum, maximum and mean of every 16 and every 256 points. New
rows wait in `recent` until 512 of them can be folded into chunks at once, so that a live run does
not rewrite a chunk of every metric at every step.
"""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from training_gym.records.index.metric_lines import MetricLine, metric_line
from training_gym.records.index.rollups import rollups

CHUNK = 4096
EXACT_POINTS = 65_536
"""Longer columns are drawn from rollups, which shorter ones therefore do not have."""
FOLD_AT = 512
"""Rows that wait before they are folded."""
AXES = ("~seq", "~time", "~batch", "~optimizer_step", "~policy_version", "~tokens")
"""Columns that no metric can be called: `~tokens` counts sampled tokens of the lane so far."""
TOKENS = ("sampled_tokens", "target_tokens")
"""Metrics that say how many tokens a record is about; the first that is there counts."""


@dataclass
class _Block:
    """Rows of the same columns, one after another in `data`."""

    names: tuple[str, ...]
    """Those of `AXES` first."""
    rows: list[int] = field(default_factory=list)
    data: array[float] = field(default_factory=lambda: array("d"))

    def row(self, place: int) -> array[float]:
        width = len(self.names)
        return self.data[place * width : (place + 1) * width]

    def column(self, place: int) -> array[float]:
        return self.data[place :: len(self.names)]


@dataclass
class _Lane:
    """A lane while rows are added to it."""

    id: int
    num_rows: int
    last_seq: int
    tokens: float
    added: int = 0
    blocks: dict[tuple[str, ...], tuple[_Block, int | None]] = field(default_factory=dict)
    """By the names of a record's metrics; beside each the place of its tokens among these."""

    def add(self, line: MetricLine) -> None:
        """Add a record; one that is found again counts once."""
        if line.seq <= self.last_seq:
            return
        known = self.blocks.get(line.names)
        if known is None:
            counted = next((line.names.index(name) for name in TOKENS if name in line.names), None)
            known = self.blocks[line.names] = _Block((*AXES, *line.names)), counted
        block, counted = known
        if counted is not None and math.isfinite(line.values[counted]):
            self.tokens += line.values[counted]
        block.rows.append(self.num_rows + self.added)
        block.data.extend((*line.envelope, self.tokens))
        block.data.extend(line.values)
        self.last_seq = line.seq
        self.added += 1


def take_in(connection: sqlite3.Connection, records: Iterable[MetricLine | dict[str, Any]]) -> None:
    """Add metric records; one that is found again counts once."""
    lanes: dict[tuple[str, int], _Lane] = {}
    for record in records:
        line = record if isinstance(record, MetricLine) else metric_line(record)
        if line is None:
            continue
        lane = lanes.get(line[:2])
        if lane is None:
            lane = lanes[line[:2]] = _lane(connection, line.writer, line.attempt)
        lane.add(line)
    for lane in lanes.values():
        _keep(connection, lane)


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


def _keep(connection: sqlite3.Connection, lane: _Lane) -> None:
    """Keep the rows, folded where enough have come together."""
    waiting = connection.execute(
        "SELECT COUNT(*) FROM recent WHERE lane = ?", (lane.id,)
    ).fetchone()[0]
    blocks = [block for block, _ in lane.blocks.values()]
    if waiting + lane.added >= FOLD_AT:
        _fold(connection, lane.id, _waiting(connection, lane.id) + blocks)
        connection.execute("DELETE FROM recent WHERE lane = ?", (lane.id,))
    else:
        _let_wait(connection, lane.id, blocks)
    connection.execute(
        "UPDATE lanes SET num_rows = ?, last_seq = ?, tokens = ? WHERE id = ?",
        (lane.num_rows + lane.added, lane.last_seq, lane.tokens, lane.id),
    )


def _let_wait(connection: sqlite3.Connection, lane: int, blocks: list[_Block]) -> None:
    rows: list[tuple[int, int, bytes, bytes]] = []
    for block in blocks:
        ids = ids_of(connection, block.names)
        names = array("i", [ids[name] for name in block.names]).tobytes()
        for place, number in enumerate(block.rows):
            rows.append((lane, number, names, block.row(place).tobytes()))
    connection.executemany(
        "INSERT INTO recent (lane, row, names, data) VALUES (?, ?, ?, ?)", sorted(rows)
    )


def _waiting(connection: sqlite3.Connection, lane: int) -> list[_Block]:
    """The rows in `recent`, which always precede new ones and follow those in chunks."""
    by_id: dict[int, str] = dict(connection.execute("SELECT id, name FROM names"))
    blocks: dict[bytes, _Block] = {}
    for row, names, data in connection.execute(
        "SELECT row, names, data FROM recent WHERE lane = ? ORDER BY row", (lane,)
    ):
        if names not in blocks:
            blocks[names] = _Block(tuple(by_id[number] for number in array("i", names)))
        blocks[names].rows.append(row)
        blocks[names].data.frombytes(data)
    return list(blocks.values())


def _fold(connection: sqlite3.Connection, lane: int, blocks: list[_Block]) -> None:
    """Turn rows into columns and append each to its chunks."""
    found: dict[str, list[tuple[Sequence[int], array[float]]]] = {}
    for block in blocks:
        rows = _as_range(block.rows)
        for place, name in enumerate(block.names):
            found.setdefault(name, []).append((rows, block.column(place)))
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
    parts = sorted(parts, key=lambda part: part[0][0])
    rows: Sequence[int] = parts[0][0]
    data = parts[0][1]
    for numbers, values in parts[1:]:
        if rows[-1] > numbers[0]:  # they alternate
            pairs = sorted(pair for part in parts for pair in zip(*part, strict=True))
            return [number for number, _ in pairs], array("d", [value for _, value in pairs])
        rows, data = _joined(rows, numbers), data + values
    return rows, data


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
        connection.execute(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, NULL, NULL, ?, ?)",
            (lane, name, chunk, len(part), rows[0], _stored_rows(rows), part.tobytes()),
        )
        chunk += 1
    if chunk * CHUNK > EXACT_POINTS:
        _roll_up(connection, lane, name)


def _roll_up(connection: sqlite3.Connection, lane: int, name: int) -> None:
    """Give rollups to the whole chunks that have none."""
    for chunk, data in connection.execute(
        "SELECT number, data FROM chunks"
        " WHERE name = ? AND lane = ? AND count = ? AND by_16 IS NULL",
        (name, lane, CHUNK),
    ).fetchall():
        by_256, by_16 = rollups(array("d", data))
        connection.execute(
            "UPDATE chunks SET by_256 = ?, by_16 = ? WHERE name = ? AND lane = ? AND number = ?",
            (by_256.tobytes(), by_16.tobytes(), name, lane, chunk),
        )


def _stored_rows(rows: Sequence[int]) -> bytes | None:
    """None where rows follow each other without a gap, as they mostly do."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return None
    return array("q", rows).tobytes()


def row_numbers(first: int, count: int, stored: bytes | None) -> Sequence[int]:
    """Rows of a chunk's points."""
    return range(first, first + count) if stored is None else array("q", stored)
