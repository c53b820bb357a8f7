"""Writing records as if at another time: the formats of `records.lines`, a clock of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_gym.records.documents import encode
from training_gym.records.lines import Envelope, Record, StreamWriters
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.tokens import Block
from training_gym.spec.episodes import Counters, Episode

BATCH = 256
"""Records that are written together."""


class Clock:
    """The run's own time."""

    def __init__(self, now: float) -> None:
        """Starts at `now`, seconds since 1970; its monotonic time at 1000 s."""
        self._shift = now - 1000.0
        self.now = now

    @property
    def monotonic(self) -> float:
        """Seconds of the host's clock."""
        return self.now - self._shift


class TimedWriter:
    """A writer whose records carry the clock's time; written as they come, in batches."""

    def __init__(self, run: RunDirectory, writer: str, attempt: int, clock: Clock) -> None:
        """Into segments of its own."""
        self._writer, self._attempt, self._clock = writer, attempt, clock
        self._files = StreamWriters(run, writer, attempt)
        self._waiting: list[Record] = []
        self.counters = Counters()
        self.seq = -1
        """Of the newest record."""

    def write(
        self,
        stream: Stream,
        fields: Mapping[str, Any],
        *,
        counters: Counters | None = None,
        episode: Episode | None = None,
        columns: Block | None = None,
    ) -> None:
        """Add a record now."""
        self.seq += 1
        envelope = Envelope(
            self._writer,
            self._attempt,
            self.seq,
            self._clock.now,
            self._clock.monotonic,
            counters or self.counters,
        )
        text = envelope.around(encode(dict(fields)))
        self._waiting.append(Record(stream, self.seq, text, len(text), episode, columns))
        if len(self._waiting) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what waits; raises `RecordsError`."""
        waiting, self._waiting = self._waiting, []
        failure, _ = self._files.write_each_stream(waiting)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Write what waits and close the files."""
        self.flush()
        self._files.close()
