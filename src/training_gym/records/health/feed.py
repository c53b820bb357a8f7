"""A run's records of several streams in one order: by attempt, then time, each writer's own kept.

Live watching and replay read through the same order; what is newer than `SETTLED_S` waits, because
another process may still be writing something older.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from training_gym.records.readers import read_page
from training_gym.records.run_directory import RunDirectory, Stream

SETTLED_S = 1.5
"""Records reach their files well within this."""

Item = tuple[Stream, dict[str, Any]]


class Feed:
    """Reads on in several streams."""

    def __init__(self, run: RunDirectory, streams: Sequence[Stream]) -> None:
        """Start at the beginning; what a later resume hid is read as well."""
        self._run, self._streams = run, streams
        self._cursors: dict[Stream, str] = {}
        self._waiting: list[Item] = []

    def new(self, before: float | None = None) -> list[Item]:
        """What has come, up to a time (seconds since 1970; None: everything), in order."""
        for stream in self._streams:
            page = read_page(
                self._run, stream, since=self._cursors.get(stream, ""), show_hidden=True
            )
            self._cursors[stream] = page.cursor
            self._waiting += [(stream, record) for record in page.records]
        ordered = in_order(self._waiting)
        count = len(ordered)
        if before is not None:
            ready = (i for i, (_, record) in enumerate(ordered) if record["time"] > before)
            count = next(ready, count)
        self._waiting = ordered[count:]
        return ordered[:count]


def in_order(items: Iterable[Item]) -> list[Item]:
    """By attempt, then time; a clock that is set back does not disorder one writer's records."""
    by_writer: dict[tuple[int, str], list[Item]] = {}
    for item in items:
        by_writer.setdefault((item[1]["attempt"], _writer(item[1])), []).append(item)
    keyed = [pair for found in by_writer.values() for pair in _keyed(found)]
    keyed.sort(key=lambda pair: pair[0])
    return [item for _, item in keyed]


def _keyed(items: list[Item]) -> Iterator[tuple[tuple[int, float, str, int], Item]]:
    at = 0.0
    for item in sorted(items, key=lambda item: item[1]["seq"]):
        record = item[1]
        at = max(at, record["time"])
        yield (record["attempt"], at, _writer(record), record["seq"]), item


def _writer(record: Mapping[str, Any]) -> str:
    return str(record["writer"])
