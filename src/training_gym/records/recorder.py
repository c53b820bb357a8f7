"""What an engine, a job runner or a viewer says to a run's records.

Calls return at once: a thread writes (see `records.background`). A record is acknowledged when
`flush()` has returned: then a killed process loses nothing.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from training_gym.records.background import BackgroundWriter
from training_gym.records.checkpoints import Checkpoint, Position
from training_gym.records.documents import encode, storage_error
from training_gym.records.lines import RESERVED
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.tokens import Block
from training_gym.spec.episodes import Counters, Episode


class Recorder:
    """One writer's records of one attempt. For any number of threads; `close()` it at the end.

    One at a time for each writer and attempt; a later one goes on counting where it ended.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        writer: str,
        attempt: int,
        max_records: int = 8192,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`max_records` and `max_bytes` (approximate) bound what waits to be written."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", writer):
            raise ValueError(f"{writer!r} cannot be part of a file name")
        self.counters = Counters()
        """What records carry that are given no counters of their own."""
        self._run, self._name, self._attempt = run, writer, attempt
        self._writer = BackgroundWriter(run, writer, attempt, max_records, max_bytes)
        atexit.register(self.close)

    def metrics(self, values: Mapping[str, float], counters: Counters | None = None) -> None:
        """Record numbers by name; may be dropped under pressure."""
        plain = {
            name: value if isinstance(value, int) else float(value)
            for name, value in values.items()
        }
        self.record("metrics", {"values": plain}, counters)

    def event(self, kind: str, *, counters: Counters | None = None, **fields: Any) -> None:
        """Record that something happened."""
        self.record("events", {"kind": kind, **fields}, counters)

    def attempt_started(self, resumed_from: Checkpoint | None = None) -> None:
        """Say that training begins, from where, and that the process now obeys signals.

        Call once, after the signal handlers are set: control requests are held back until then.
        """
        point = None
        if resumed_from is not None:
            point = {
                "optimizer_step": resumed_from.step,
                "batch": resumed_from.counters.batch,
                "position": resumed_from.position,
            }
        self.event("attempt_started", resumed_from=point)

    def alert(
        self,
        rule: str,
        message: str,
        *,
        severity: str = "warning",
        counters: Counters | None = None,
        **fields: Any,
    ) -> None:
        """Record that a health rule found something."""
        said = {"rule": rule, "message": message, "severity": severity}
        self.record("alerts", {**said, **fields}, counters)

    def episode(self, episode: Episode, *, staleness: int | None = None) -> None:
        """Record an episode with its tokens; never dropped.

        `staleness`: policy versions between its oldest token and the policy that learns from it;
        None: readers take it from the tokens.
        """
        fields = {} if staleness is None else {"staleness": staleness}
        self.record("episodes", fields, episode.counters, episode=episode)

    def token_columns(
        self,
        episode: str,
        columns: Mapping[str, Sequence[float]],
        *,
        trajectory: int = 0,
        start: int = 0,
        counters: Counters | None = None,
    ) -> None:
        """Record what became known of an episode's tokens after it was recorded, for display.

        Columns such as `entropy`, `advantage` or `mismatch` hold a value for each token of
        the trajectory from the token `start` on, kept as f16; may be dropped under pressure.
        """
        block = Block.pack(
            *((name, "f16", [_half(v) for v in values]) for name, values in columns.items())
        )
        fields = {"episode": episode, "trajectory": trajectory, "start": start}
        self._writer.put("tokens", encode(fields), counters or self.counters, columns=block)

    def span(
        self,
        name: str,
        start: float,
        end: float,
        *,
        counters: Counters | None = None,
        **fields: Any,
    ) -> None:
        """Record how long something took; `start` and `end` as `time.monotonic()` gave them."""
        self.record("spans", {"name": name, "start": start, "end": end, **fields}, counters)

    def log(self, text: str, *, source: str = "log", **fields: Any) -> None:
        """Record a line of text; may be dropped under pressure."""
        self.record("logs", {"text": text, "source": source, **fields})

    def evaluation(self, *, counters: Counters | None = None, **fields: Any) -> None:
        """Record what an evaluation found; never dropped."""
        self.record("evaluations", fields, counters)

    def heartbeat(self, **fields: Any) -> None:
        """Record that the writer lives, and what it is doing."""
        self.record("heartbeat", fields)

    def record(
        self,
        stream: Stream,
        fields: Mapping[str, Any],
        counters: Counters | None = None,
        *,
        episode: Episode | None = None,
    ) -> None:
        """Add a record to any stream.

        Raises `RecordsError` if what must not be lost can no longer be written.
        """
        taken = RESERVED & fields.keys()
        if taken:
            raise ValueError(f"a record has its own {', '.join(sorted(taken))}")
        self._writer.put(stream, encode(dict(fields)), counters or self.counters, episode)
        if fields.get("kind") == "attempt_started":
            self._mark_ready()

    @property
    def dropped(self) -> dict[str, int]:
        """Records lost to pressure so far, by stream."""
        return self._writer.dropped

    def position(self) -> Position:
        """Where this writer stands; a checkpoint keeps it so that a resume cuts exactly here."""
        return Position(writer=self._name, attempt=self._attempt, seq=self._writer.last_seq)

    def flush(self, *, sync: bool = False) -> None:
        """Return once the system has all records; `sync`: once the disk has.

        Tries again what failed before, and raises `RecordsError` if it still cannot be written.
        """
        self._writer.flush(sync=sync)

    def close(self) -> None:
        """Write what waits and close the files; raises `RecordsError` if that fails."""
        atexit.unregister(self.close)
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _mark_ready(self) -> None:
        marker = self._run.attempt(self._attempt) / "ready"
        try:
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError as error:
            raise storage_error(error, marker) from error


def _half(value: float) -> float:
    """Within what half precision can hold; what lies beyond becomes its greatest number."""
    return max(-65504.0, min(65504.0, value)) if value == value else value
