"""Reading a run's streams while they are written, from any process, without an index.

A torn last line is not there yet; a damaged one loses only itself. Records come by attempt, then by
time, each writer's in the order it wrote them. What a resume made void is hidden unless asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, get_args

from training_gym.records.documents import storage_error
from training_gym.records.lines import sidecar
from training_gym.records.resume import HIDEABLE, Cut, cuts, is_hidden
from training_gym.records.run_directory import SCHEMA_VERSION, RunDirectory, Stream
from training_gym.records.segments import Segment, segments
from training_gym.records.tokens import load_trajectory
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RecordsError

_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True)
class Page:
    """Some records and where to go on."""

    records: tuple[dict[str, Any], ...]
    cursor: str
    """Pass as `since` to read on; valid for this stream of this run."""
    damaged: int = 0
    """Lines that could not be read."""


def read_stream(
    run: RunDirectory, stream: Stream, *, limit: int | None = None, show_hidden: bool = False
) -> list[dict[str, Any]]:
    """Records of a stream; `limit`: the newest so many."""
    records = read_page(run, stream, show_hidden=show_hidden).records
    return list(records if limit is None else records[max(0, len(records) - limit) :])


def read_page(
    run: RunDirectory,
    stream: Stream,
    *,
    since: str = "",
    limit: int | None = None,
    show_hidden: bool = False,
) -> Page:
    """The records after a cursor, oldest first, at most `limit`."""
    offsets = _parse_cursor(since)
    read = [
        _read_segment(segment, offsets.get(segment.path.name, 0))
        for segment in segments(run.streams / stream)
    ]
    ordered = _in_order([item for part in read for item in part.found])
    taken = ordered if limit is None else ordered[:limit]
    for item in taken:
        name = item.segment.path.name
        offsets[name] = max(offsets.get(name, 0), item.end)
    if len(taken) == len(ordered):
        offsets |= {part.name: part.end for part in read}
    made = _cuts_of(run) if stream in HIDEABLE and not show_hidden else []
    shown = tuple(item.record for item in taken if not is_hidden(item.record, made))
    cursor = json.dumps(offsets, separators=(",", ":"))
    return Page(shown, cursor, damaged=sum(part.damaged for part in read))


def read_episodes(
    run: RunDirectory,
    *,
    stream: str | None = None,
    limit: int | None = None,
    tokens: bool = True,
    show_hidden: bool = False,
) -> list[Episode]:
    """Episodes of one `stream` (`train` or an evaluation's name; None: all), the newest `limit`.

    Without `tokens` they have no trajectories. Raises `RecordsError` for damaged token columns.
    """
    items = _in_order(
        [
            item
            for segment in segments(run.streams / "episodes")
            for item in _read_segment(segment).found
        ]
    )
    made = [] if show_hidden else _cuts_of(run)
    wanted = [
        item
        for item in items
        if stream in (None, item.record["episode"]["stream"]) and not is_hidden(item.record, made)
    ]
    if limit is not None:
        wanted = wanted[max(0, len(wanted) - limit) :]
    with ExitStack() as open_files:
        sidecars = _Sidecars(open_files)
        return [_episode(item, sidecars if tokens else None) for item in wanted]


def last_record(
    run: RunDirectory, stream: Stream, writer: str | None = None
) -> dict[str, Any] | None:
    """The newest record of a stream's last attempt (of one writer), read from the files' ends."""
    found = [
        segment for segment in segments(run.streams / stream) if writer in (None, segment.writer)
    ]
    for attempt in sorted({segment.attempt for segment in found}, reverse=True):
        tails = [_tail(segment) for segment in found if segment.attempt == attempt]
        newest = [tail for tail in tails if tail is not None]
        if newest:
            return max(newest, key=lambda record: (record["time"], record["seq"]))
    return None


def last_seq(run: RunDirectory, writer: str, attempt: int) -> int:
    """The last sequence number a writer has used in an attempt; -1: none."""
    return last_of_segments(
        segment
        for stream in get_args(Stream)
        for segment in segments(run.streams / stream)
        if segment.attempt == attempt and segment.writer.removesuffix(".spill") == writer
    )


def last_of_segments(found: Iterable[Segment]) -> int:
    """The last sequence number in these segments; -1: none."""
    tails = [_tail(segment) for segment in found]
    return max((tail["seq"] for tail in tails if tail is not None), default=-1)


@dataclass(frozen=True)
class _Found:
    """A record and the place it was read from."""

    segment: Segment
    end: int
    record: dict[str, Any]


@dataclass(frozen=True)
class _Lines:
    """What one segment held after an offset."""

    name: str
    found: list[_Found]
    end: int
    """Offset behind the last whole line."""
    damaged: int


def _read_segment(segment: Segment, offset: int = 0) -> _Lines:
    try:
        with open(segment.path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError as error:
        raise storage_error(error, segment.path) from error
    found, damaged = [], 0
    *lines, _torn = data.split(b"\n")
    for line in lines:
        offset += len(line) + 1
        record = _parse(line)
        if record is None:
            damaged += 1
        else:
            found.append(_Found(segment, offset, record))
    return _Lines(segment.path.name, found, offset, damaged)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("schema"), int):
        return None
    if record["schema"] > SCHEMA_VERSION:
        raise RecordsError(
            f"records of schema {record['schema']}; this version reads up to {SCHEMA_VERSION}",
            fix="upgrade: pip install --upgrade training-gym",
        )
    return record


def _in_order(found: list[_Found]) -> list[_Found]:
    """By attempt, then time; clocks may jump, so a writer's own order comes before its times.

    A record written twice (again after a failure) counts once.
    """
    by_writer = sorted(found, key=_identity)
    keyed: list[tuple[tuple[int, float, str, int], _Found]] = []
    for (attempt, writer), items in groupby(by_writer, key=lambda item: _identity(item)[:2]):
        at, last = 0.0, -1
        for item in items:
            if item.record["seq"] == last:
                continue
            last = item.record["seq"]
            at = max(at, item.record["time"])
            keyed.append(((attempt, at, writer, last), item))
    keyed.sort(key=lambda pair: pair[0])
    return [item for _, item in keyed]


def _identity(item: _Found) -> tuple[int, str, int]:
    return item.record["attempt"], item.record["writer"], item.record["seq"]


def _cuts_of(run: RunDirectory) -> list[Cut]:
    return cuts(
        item.record
        for segment in segments(run.streams / "events")
        for item in _read_segment(segment).found
    )


class _Sidecars:
    """Token columns of many segments, each opened once."""

    def __init__(self, open_files: ExitStack) -> None:
        self._open_files = open_files
        self._files: dict[Path, BinaryIO] = {}

    def reader(self, segment: Path) -> Callable[[int, int], bytes]:
        if segment not in self._files:
            path = sidecar(segment)
            try:
                self._files[segment] = self._open_files.enter_context(path.open("rb"))
            except OSError as error:
                raise storage_error(error, path) from error
        file = self._files[segment]

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        return read


def _episode(item: _Found, sidecars: _Sidecars | None) -> Episode:
    episode = Episode.read(item.record["episode"])
    stored = item.record["trajectories"]
    if sidecars is None or not stored:
        return episode
    read = sidecars.reader(item.segment.path)
    trajectories = tuple(load_trajectory(trajectory, read) for trajectory in stored)
    return episode.model_copy(update={"trajectories": trajectories})


def _tail(segment: Segment) -> dict[str, Any] | None:
    """The last whole record of a segment, read from its end where lines are not enormous."""
    with open(segment.path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        for start in sorted({max(0, size - _TAIL_BYTES), 0}, reverse=True):
            file.seek(start)
            for line in reversed(file.read().split(b"\n")[:-1]):
                record = _parse(line)
                if record is not None:
                    return record
    return None


def _parse_cursor(since: str) -> dict[str, int]:
    if not since:
        return {}
    try:
        offsets = json.loads(since)
        return {str(name): int(offset) for name, offset in offsets.items()}
    except (ValueError, AttributeError, TypeError):
        raise RecordsError(
            f"{since!r:.60} is not a cursor", fix="pass the cursor of the page before, or none"
        ) from None
