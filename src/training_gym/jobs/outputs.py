"""What the engine's process says, line by line, into our records.

Its pipes are always drained, whatever becomes of the records: a full disk must not block training.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any, get_args

from training_gym.records.documents import storage_error
from training_gym.records.lines import COUNTERS, RESERVED
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import EngineError, GymError, did_you_mean
from training_gym.spec.job import Job, Tap

LINE_BYTES = 64 * 1024
"""Longer lines are split."""
_CHUNK_BYTES = 64 * 1024
_TAIL_LINES = 20
_DEFAULT_TAPS = (Tap(source="stdout"), Tap(source="stderr"))


class LineSplitter:
    """Bytes in, whole lines out, none longer than the limit; characters stay whole."""

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self._limit = limit_bytes
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that are now complete, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        pieces = [piece for line in lines for piece in self._pieces(line)]
        if len(self._rest) > self._limit:
            *begun, self._rest = self._pieces(self._rest)
            pieces += begun
        return pieces

    def end(self) -> list[bytes]:
        """What is left when nothing more will come."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []

    def _pieces(self, line: bytes) -> list[bytes]:
        pieces = []
        while len(line) > self._limit:
            # Back to where a character begins, which is at most 3 bytes; garbage is cut anywhere.
            starts = (at for at in range(self._limit, self._limit - 4, -1) if _starts(line[at]))
            cut = next(starts, self._limit)
            pieces.append(line[:cut])
            line = line[cut:]
        return [*pieces, line]


def _starts(byte: int) -> bool:
    """Whether a byte begins a character in UTF-8."""
    return byte & 0xC0 != 0x80


def shown(line: bytes) -> str:
    """The line as a terminal would show it in the end: a progress bar's last state."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]


class Outputs:
    """All taps of one attempt: pipes, the engine's own files, and a plain log for people."""

    def __init__(self, run: RunDirectory, job: Job, attempt: int, recorder: Recorder) -> None:
        """Raises `EngineError` for a tap that leads nowhere, `RecordsError` for a full disk."""
        taps = job.taps or _DEFAULT_TAPS
        for tap in taps:
            _require_usable(tap)
        self._recorder = recorder
        self._streams = {tap.source: tap.stream for tap in taps if tap.source != "file"}
        self._files = [
            _FileTap(run.path / (tap.path or ""), tap.stream) for tap in taps if tap.path
        ]
        self._log = _open_log(run.attempt(attempt) / "output.log")
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stderr: deque[str] = deque(maxlen=_TAIL_LINES)
        self.ended = threading.Event()
        """Set whenever a pipe has come to its end."""

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of what was said on stderr."""
        return tuple(self._stderr)

    def drain(self, source: str, pipe: IO[bytes]) -> None:
        """Read a pipe to its end, in a thread."""
        thread = threading.Thread(
            target=self._drain, args=(source, pipe), name=f"tap-{source}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def poll_files(self) -> None:
        """Take over what the engine has added to its own files."""
        for file in self._files:
            for line in file.new_lines():
                self._record(shown(line), file.stream, file.path.name)

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for the pipes' ends, which come when all writers are gone."""
        for thread in self._threads:
            thread.join(timeout_s)
        self.poll_files()
        for file in self._files:
            for line in file.rest():
                self._record(shown(line), file.stream, file.path.name)
        self._log.close()

    def _drain(self, source: str, pipe: IO[bytes]) -> None:
        splitter = LineSplitter()
        with pipe:
            while data := os.read(pipe.fileno(), _CHUNK_BYTES):
                self._take(source, splitter.feed(data))
        self._take(source, splitter.end())
        self.ended.set()

    def _take(self, source: str, lines: list[bytes]) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # full disk, late writer
            self._log.write(b"".join(line + b"\n" for line in lines))
        for line in lines:
            text = shown(line)
            if source == "stderr":
                self._stderr.append(text[:2000])
            if source in self._streams:
                self._record(text, self._streams[source], source)

    def _record(self, text: str, stream: str, source: str) -> None:
        # The recorder refuses everything while the disk is full; the engine meets that itself.
        with contextlib.suppress(GymError, RuntimeError):
            fields = None if stream == "logs" else _fields(text)
            if fields is None:
                self._recorder.log(text, source=source)
                return
            counters = Counters(**{name: fields.pop(name) for name in COUNTERS if name in fields})
            own = {name: value for name, value in fields.items() if name not in RESERVED}
            if stream == "metrics":
                numbers = {k: v for k, v in own.items() if isinstance(v, int | float)}
                self._recorder.metrics(numbers, counters)
            else:
                self._recorder.record(stream, own, counters)  # type: ignore[arg-type]


def _open_log(path: Path) -> IO[bytes]:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise storage_error(error, path) from error


class _FileTap:
    """A file that the engine appends to."""

    def __init__(self, path: Path, stream: str) -> None:
        self.path = path
        self.stream = stream
        self._offset = path.stat().st_size if path.exists() else 0
        self._splitter = LineSplitter()

    def new_lines(self) -> list[bytes]:
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
            self._offset += len(data)
            return self._splitter.feed(data)
        return []

    def rest(self) -> list[bytes]:
        return self._splitter.end()


def _fields(text: str) -> dict[str, Any] | None:
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _require_usable(tap: Tap) -> None:
    known = [stream for stream in get_args(Stream) if stream != "episodes"]
    if tap.stream not in known:
        raise EngineError(
            f"a tap leads to the stream {tap.stream!r}", fix=did_you_mean(tap.stream, known)
        )
    if (tap.source == "file") != (tap.path is not None):
        raise EngineError(
            f"a tap of {tap.source!r} has path {tap.path!r}",
            fix="give a path to taps of files, and to no others",
        )
