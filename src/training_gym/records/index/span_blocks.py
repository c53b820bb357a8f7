"""Spans stay in their files: the index knows where to look for those of a time.

A *block* is a stretch of one segment, at most 256 spans, with the earliest start and the latest end
in it. A span's number is its block's and its place among the block's records, so numbers grow in
the order in which spans were read. Spans that have only begun are listed by themselves, until a
record of the same `span` closes them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from training_gym.records.index.decode import number_or_none, record_of
from training_gym.records.index.places import Place, read_bytes
from training_gym.records.index.stream_values import SpanRow
from training_gym.records.lines import RESERVED
from training_gym.records.resume import Cut, is_hidden
from training_gym.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from training_gym.records.index.tailing import Part

BLOCK = 256
LANES = {
    "generation": "engine",
    "training": "trainer",
    "environment": "env",
    "reward": "reward",
    "sync": "sync",
    "evaluation": "driver",
    "data": "driver",
    "disk": "driver",
}
"""Lane of a span by its `component`, else by what its name begins with; `driver` if none fits."""
_SHOWN_ALREADY = RESERVED | {"name", "lane", "start", "end"}


class SpanHead(NamedTuple):
    """What the index must know of a span, or of the beginning of one."""

    writer: str
    attempt: int
    seq: int
    lane: str
    name: str
    start: float
    """Seconds since 1970; NaN where the record does not say: then it is no span."""
    stop: float | None
    """None: it has only begun; a record of the same `key` will close it."""
    key: str | None


class _Block(NamedTuple):
    id: int
    place: Place
    after_seq: int
    """Records up to this number were in blocks before."""


def span_head(record: dict[str, Any]) -> SpanHead:
    """The head of a whole record."""
    begun, ended = number_or_none(record.get("start")), number_or_none(record.get("end"))
    # The writer's clock in terms of the day's.
    shift = record["time"] - record.get("monotonic", record["time"])
    name, key = str(record.get("name", "")), record.get("span")
    return SpanHead(
        str(record["writer"]),
        record["attempt"],
        record["seq"],
        str(record.get("lane") or lane_of(str(record.get("component") or name))),
        name,
        float("nan") if begun is None else begun + shift,
        None if ended is None else ended + shift,
        None if key is None else str(key),
    )


@lru_cache(maxsize=1024)
def lane_of(name: str) -> str:
    """The lane of a component, or of a span that is called so."""
    return next((lane for start, lane in LANES.items() if name.startswith(start)), "driver")


def take_in(connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    """Add spans; one that is found again counts once."""
    for part in parts:
        records = part.records
        heads = [head if isinstance(head, SpanHead) else span_head(head) for head in records]
        for start in range(0, len(heads), BLOCK):
            places = part.places[start : start + BLOCK]
            _add(connection, part.segment_id, heads[start : start + BLOCK], places)


def _add(
    connection: sqlite3.Connection,
    segment: int,
    heads: list[SpanHead],
    places: list[tuple[int, int]],
) -> None:
    writer = heads[0][:2]
    row = connection.execute(
        "SELECT last_seq FROM span_writers WHERE writer = ? AND attempt = ?", writer
    ).fetchone()
    after = row[0] if row else -1
    identity = _grow(connection, segment, places, after)
    last, closed, keyed = after, [], []
    for number, head, place in zip(count(identity), heads, places, strict=False):
        if head.seq <= last or head.start != head.start:
            continue
        last = head.seq
        if head.key is not None or head.stop is None:
            keyed.append((number, place, head))
        if head.stop is not None:
            closed.append(head)
    connection.execute("INSERT OR REPLACE INTO span_writers VALUES (?, ?, ?)", (*writer, last))
    if closed:
        connection.execute(
            "UPDATE span_blocks SET first = min(coalesce(first, ?1), ?1),"
            " last = max(coalesce(last, ?2), ?2)"
            " WHERE id = (SELECT max(id) FROM span_blocks)",
            (min(head.start for head in closed), max(head.stop or 0.0 for head in closed)),
        )
    connection.executemany(
        "INSERT OR IGNORE INTO span_lanes VALUES (?)", [(lane,) for lane in {h.lane for h in heads}]
    )
    for number, place, head in keyed:
        _open_or_close(connection, number, (segment, *place), head)


def _grow(
    connection: sqlite3.Connection, segment: int, places: list[tuple[int, int]], after: int
) -> int:
    """Make room in the newest block if they fit in, else in a new one; number of the first."""
    begin, end = places[0][0], sum(places[-1]) + 1
    newest = connection.execute(
        "SELECT id, segment, offset, count FROM span_blocks ORDER BY id DESC LIMIT 1"
    ).fetchone()
    if newest is not None and newest[1] == segment and newest[3] + len(places) <= BLOCK:
        connection.execute(
            "UPDATE span_blocks SET length = ?, count = count + ? WHERE id = ?",
            (end - newest[2], len(places), newest[0]),
        )
        return int(newest[0] + newest[3])
    identity = 1 if newest is None else newest[0] + newest[3]
    connection.execute(
        "INSERT INTO span_blocks (id, segment, offset, length, count, after_seq)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (identity, segment, begin, end - begin, len(places), after),
    )
    return int(identity)


def _open_or_close(
    connection: sqlite3.Connection, number: int, place: Place, head: SpanHead
) -> None:
    if head.stop is None:
        connection.execute(
            "INSERT INTO open_spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, *place, head.writer, head.attempt, head.key, head.name, head.start),
        )
    else:
        connection.execute(
            "DELETE FROM open_spans WHERE writer = ? AND attempt = ? AND key = ?",
            (head.writer, head.attempt, head.key),
        )


def spans_within(
    run: RunDirectory,
    connection: sqlite3.Connection,
    start: float | None,
    stop: float | None,
    made: Sequence[Cut],
) -> list[SpanRow]:
    """Spans that show and overlap a range of time; open ones that began before its end."""
    low = float("-inf") if start is None else start
    high = float("inf") if stop is None else stop
    blocks = connection.execute(
        "SELECT id, segment, offset, length, after_seq FROM span_blocks"
        " WHERE last >= ? AND first <= ?",
        (low, high),
    ).fetchall()
    found = [
        _value(number, head, record)
        for block in map(_block, blocks)
        for number, head, record in _read(run, connection, block)
        if head.stop is not None and head.stop >= low and head.start <= high
        if not _void(record, made)
    ]
    for number, *place in connection.execute(
        "SELECT id, segment, offset, length FROM open_spans WHERE start <= ?", (high,)
    ).fetchall():
        record = record_of(read_bytes(run, connection, "spans", (place[0], place[1], place[2])))
        if record is not None and not _void(record, made):
            found.append(_value(number, span_head(record), record))
    return sorted(found, key=lambda span: (span.start, span.id))


def spans_after(
    run: RunDirectory, connection: sqlite3.Connection, mark: int, limit: int, made: Sequence[Cut]
) -> tuple[list[SpanRow], int]:
    """Spans that show with greater numbers, the first `limit`; the number they end with."""
    opened = {number for (number,) in connection.execute("SELECT id FROM open_spans")}
    found: list[SpanRow] = []
    for row in connection.execute(
        "SELECT id, segment, offset, length, after_seq FROM span_blocks"
        " WHERE id + count > ? ORDER BY id",
        (mark + 1,),
    ).fetchall():
        for number, head, record in _read(run, connection, _block(row)):
            if number <= mark:
                continue
            if len(found) == limit:
                return found, mark
            mark = number
            if (head.stop is not None or number in opened) and not _void(record, made):
                found.append(_value(number, head, record))
    return found, mark


def newest_number(connection: sqlite3.Connection) -> int:
    """Number of the newest span; 0 if there is none."""
    row = connection.execute("SELECT coalesce(max(id + count - 1), 0) FROM span_blocks").fetchone()
    return int(row[0])


def lanes_of(connection: sqlite3.Connection) -> set[str]:
    """Lanes of all spans."""
    return {lane for (lane,) in connection.execute("SELECT lane FROM span_lanes")}


def _block(row: Sequence[Any]) -> _Block:
    return _Block(row[0], (row[1], row[2], row[3]), row[4])


def _read(
    run: RunDirectory, connection: sqlite3.Connection, block: _Block
) -> Iterator[tuple[int, SpanHead, dict[str, Any]]]:
    """A block's spans with their numbers; those that are found again left out."""
    number, last = block.id - 1, block.after_seq
    for line in read_bytes(run, connection, "spans", block.place).split(b"\n"):
        record = record_of(line)
        if record is None:
            continue
        number += 1
        head = span_head(record)
        if head.seq > last and head.start == head.start:
            last = head.seq
            yield number, head, record


def _void(record: dict[str, Any], made: Sequence[Cut]) -> bool:
    """Whether a resume hides it."""
    return bool(made) and is_hidden({"batch": None, "optimizer_step": None, **record}, made)


def _value(number: int, head: SpanHead, record: dict[str, Any]) -> SpanRow:
    batch = record.get("batch")
    return SpanRow(
        id=number,
        lane=head.lane,
        writer=head.writer,
        name=head.name,
        start=head.start,
        end=head.stop,
        step=None if batch is None else batch + 1,
        attempt=head.attempt,
        fields={key: value for key, value in record.items() if key not in _SHOWN_ALREADY},
    )
