"""Append-only segments: `streams/<stream>/<writer>-<attempt>-<n>.jsonl`.

One writer for each file, a new file for each attempt, rolled at 16 MB. A line that could not be
written whole is taken back, or its file is left for good: a torn line is always a file's last.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, order=True)
class Segment:
    """A segment's file name, taken apart."""

    attempt: int
    writer: str
    number: int
    path: Path

    @classmethod
    def parse(cls, path: Path) -> Segment | None:
        """None: the file is not a segment."""
        writer, _, rest = path.stem.rpartition("-")
        writer, _, attempt = writer.rpartition("-")
        if path.suffix != ".jsonl" or not writer or not (attempt.isdecimal() and rest.isdecimal()):
            return None
        return cls(int(attempt), writer, int(rest), path)


def segments(folder: Path) -> list[Segment]:
    """All segments of a stream's folder, by attempt, writer and number."""
    try:
        found = [Segment.parse(path) for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(segment for segment in found if segment is not None)


class SegmentWriter:
    """Appends lines to a stream, and token columns to the sidecar of the segment they go to.

    `write` returns once the operating system has the bytes. Raises `OSError` and stays usable.
    Not for several threads.
    """

    def __init__(
        self, folder: Path, writer: str, attempt: int, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._folder = folder
        self._prefix = f"{writer}-{attempt}"
        self._limit = limit_bytes
        self._next = 0
        self._lines: _Appender | None = None
        self._tokens: _Appender | None = None

    @property
    def path(self) -> Path:
        """The segment that the next line goes to, unless it is full."""
        return self._current().path

    def roll_if_full(self) -> None:
        """Begin a new segment if this one, or its sidecar, has reached the limit."""
        sizes = [part.size for part in (self._lines, self._tokens) if part is not None]
        if sizes and max(sizes) >= self._limit:
            self.close()

    def write(self, lines: bytes) -> None:
        """Append whole lines."""
        self._guarded(self._current(), lines)

    def write_tokens(self, block: bytes) -> int:
        """Append to the segment's sidecar; returns the block's offset there."""
        segment = self._current()
        if self._tokens is None:
            self._tokens = _Appender(segment.path.with_suffix(".tok"))
        offset = self._tokens.size
        self._guarded(self._tokens, block)
        return offset

    def sync(self) -> None:
        """Force what was written onto the disk; sidecar first."""
        for part in (self._tokens, self._lines):
            if part is not None:
                os.fsync(part.descriptor)

    def close(self) -> None:
        """Close the files; the next write begins a new segment."""
        for part in (self._tokens, self._lines):
            if part is not None:
                os.close(part.descriptor)
        self._lines = self._tokens = None

    def _current(self) -> _Appender:
        if self._lines is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            while self._lines is None:
                path = self._folder / f"{self._prefix}-{self._next}.jsonl"
                self._next += 1
                with contextlib.suppress(FileExistsError):
                    self._lines = _Appender(path)
        return self._lines

    def _guarded(self, part: _Appender, data: bytes) -> None:
        try:
            part.append(data)
        except OSError:
            try:
                part.take_back()
            except OSError:
                self.close()
            raise


class _Appender:
    """A file of our own that only grows, and knows how much of it is good."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self.descriptor = os.open(path, flags, 0o644)

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]
        self.size += len(data)

    def take_back(self) -> None:
        """Cut off what a failed `append` left."""
        os.ftruncate(self.descriptor, self.size)
