"""Bringing a run's database up to date: what was appended to its segments, and only that.

Offsets move in the same transaction as what was read up to them, so any number of processes may do
this at once and each record is taken in exactly once. A torn last line is not there yet.
"""

from __future__ import annotations

import contextlib
import gc
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from training_gym.records.index import (
    columns,
    cutting,
    episode_intake,
    record_intake,
    span_blocks,
)
from training_gym.records.index.decode import record_of
from training_gym.records.index.places import read_part
from training_gym.records.index.quick_reading import Reader, quick_reader
from training_gym.records.index.store import Stale
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.segments import Segment, segments
from training_gym.spec.errors import RecordsError

BLOCK_BYTES = 8 * 1024 * 1024
"""Read and committed at once: others can read, or take over, in between."""
PIECE_BYTES = 128 * 1024
"""Parsed at once: what it is made into on the way stays in the processor's cache."""
_STREAMS: tuple[Stream, ...] = get_args(Stream)
_FIRST = ("events", "metrics", "episodes")


@dataclass
class Part:
    """Whole lines of one segment, parsed, with the places they lie at."""

    segment_id: int
    segment: Segment
    records: list[Any] = field(default_factory=list)
    """Plain data, or what `quick_reader` made of it."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Offset and length of each."""
    damaged: int = 0
    end: int = 0
    data: bytes = b""
    """The lines themselves, from `begin` on."""
    begin: int = 0

    def line(self, number: int) -> bytes:
        """The line of a record."""
        return self._line_at(self.places[number])

    def whole(self, place: tuple[int, int]) -> dict[str, Any] | None:
        """The record at a place as plain data; None: it is damaged."""
        return record_of(self._line_at(place))

    def _line_at(self, place: tuple[int, int]) -> bytes:
        offset, length = place
        return self.data[offset - self.begin : offset - self.begin + length]


def bring_up_to_date(run: RunDirectory, connection: sqlite3.Connection) -> None:
    """Take in everything that has been written when this is called. Raises `Stale`."""
    found = _grown(run, connection)
    while found:
        connection.execute("BEGIN IMMEDIATE")
        try:
            with uncollected():
                more = _take_in_block(run, connection, found)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        found = found if more else []


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No looking for cycles among a block's records, which have none: it took half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _grown(run: RunDirectory, connection: sqlite3.Connection) -> list[tuple[Stream, Segment, int]]:
    """Segments with more in them than was read, and their sizes now."""
    known = {
        (stream, name): offset
        for stream, name, offset in connection.execute("SELECT stream, name, offset FROM segments")
    }
    grown: list[tuple[Stream, Segment, int]] = []
    for stream in sorted(_STREAMS, key=_rank):
        for segment in segments(run.streams / stream):
            try:
                size = segment.path.stat().st_size
            except FileNotFoundError:
                continue
            offset = known.pop((stream, segment.path.name), 0)
            if size < offset:
                raise Stale(f"{segment.path} became shorter")
            if size > offset:
                grown.append((stream, segment, size))
    if any(offset > 0 for offset in known.values()):
        # Retention removed a segment whose records are still shown.
        raise Stale("a segment is gone")
    return grown


def _rank(stream: Stream) -> tuple[int, str]:
    return (_FIRST.index(stream) if stream in _FIRST else len(_FIRST), stream)


def _take_in_block(
    run: RunDirectory, connection: sqlite3.Connection, found: list[tuple[Stream, Segment, int]]
) -> bool:
    """Read about one block; whether there is more. Finished segments leave `found`."""
    room = BLOCK_BYTES
    streams: dict[str, list[Part]] = {}
    while found and room > 0:
        stream, segment, size = found[0]
        part, read, done = _read(connection, stream, segment, size, room)
        if part is not None:
            streams.setdefault(stream, []).append(part)
        room -= read
        if not done:
            break
        found.pop(0)
    for name, parts in streams.items():
        _take_in(run, connection, name, parts)
    if streams:
        cutting.hide(connection, streams)
    return bool(found)


def _read(
    connection: sqlite3.Connection, stream: str, segment: Segment, size: int, room: int
) -> tuple[Part | None, int, bool]:
    """Lines after the offset; bytes read; whether the segment is read up to `size`."""
    identity, offset = _offset(connection, stream, segment)
    if offset >= size:  # another process was faster
        return None, 0, True
    data = read_part(segment.path, offset, min(size - offset, room))
    end = data.rfind(b"\n") + 1
    if end == 0 and offset + len(data) < size:  # one line longer than the room
        data = read_part(segment.path, offset, size - offset)
        end = data.rfind(b"\n") + 1
    part = Part(identity, segment, end=offset + end, data=data[:end], begin=offset)
    _parse(part, quick_reader(stream))
    connection.execute(
        "UPDATE segments SET offset = ?, records = records + ?, damaged = damaged + ? WHERE id = ?",
        (part.end, len(part.records), part.damaged, identity),
    )
    return part, len(data), offset + len(data) >= size


def _offset(connection: sqlite3.Connection, stream: str, segment: Segment) -> tuple[int, int]:
    name = segment.path.name
    row = connection.execute(
        "SELECT id, offset FROM segments WHERE stream = ? AND name = ?", (stream, name)
    ).fetchone()
    if row is not None:
        return int(row[0]), int(row[1])
    made = connection.execute(
        "INSERT INTO segments (stream, name, writer, attempt, offset, records, damaged)"
        " VALUES (?, ?, ?, ?, 0, 0, 0)",
        (stream, name, segment.writer, segment.attempt),
    )
    return int(made.lastrowid or 0), 0


def _parse(part: Part, quick: Reader) -> None:
    begin = 0
    while begin < len(part.data):
        end = 1 + part.data.rfind(b"\n", begin, begin + PIECE_BYTES)
        end = end or 1 + part.data.index(b"\n", begin)
        _parse_piece(part, part.data[begin:end], part.begin + begin, quick)
        begin = end


def _parse_piece(part: Part, data: bytes, offset: int, quick: Reader) -> None:
    places = _lines(data, offset)
    records: Sequence[Any] = quick(data) or ()
    if len(records) != len(places):
        records = (None,) * len(places)
    if None not in records:
        part.records += records
        part.places += places
        return
    for place, said in zip(places, records, strict=True):
        record = part.whole(place) if said is None else said
        if record is None:
            part.damaged += 1
        else:
            part.records.append(record)
            part.places.append(place)


def _lines(data: bytes, offset: int) -> list[tuple[int, int]]:
    """Offset and length of every line, counted from `offset`."""
    found = []
    begin, end = 0, data.find(b"\n")
    while end >= 0:
        found.append((offset + begin, end - begin))
        begin, end = end + 1, data.find(b"\n", end + 1)
    return found


def _take_in(
    run: RunDirectory, connection: sqlite3.Connection, stream: str, parts: list[Part]
) -> None:
    if stream == "metrics":
        columns.take_in(connection, [record for part in parts for record in part.records])
    elif stream == "episodes":
        episode_intake.take_in(run, connection, parts)
    elif stream == "spans":
        span_blocks.take_in(connection, parts)
    else:
        record_intake.take_in(connection, stream, parts)


@contextlib.contextmanager
def indexable(run: RunDirectory) -> Iterator[None]:
    """Raise `RecordsError` for whole records that hold what no writer of ours puts there."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecordsError(
            f"{run.run_id} cannot be indexed: {type(error).__name__}: {error}",
            fix="other runs are not affected; see what wrote its records, or delete it",
        ) from error
