"""Writing a run's records so that training never waits.

Calls put records into a bounded queue; a thread writes them. When the queue is full, metrics, logs
and spans are dropped, counted, and the count is recorded as an event; everything else is written at
once by the caller into a segment of its own (`<writer>.spill`), where readers put it back in order.
A record is acknowledged when `flush()` has returned: then a killed process loses nothing.
"""

from __future__ import annotations

import atexit
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from training_gym.records.checkpoints import Checkpoint, Position
from training_gym.records.documents import encode, storage_error
from training_gym.records.lines import RESERVED, Envelope, Record, StreamWriters
from training_gym.records.readers import last_seq
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.spec.episodes import Counters, Episode

DROPPABLE: frozenset[Stream] = frozenset({"metrics", "logs", "spans"})
GATHER_S = 0.05
"""How long the thread waits for company before it writes a lone record."""
RETRY_S = 1.0
"""How long the thread waits before it tries again to write what a full disk refused."""


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
        self._run, self._writer, self._attempt = run, writer, attempt
        self._max_records, self._max_bytes = max_records, max_bytes
        self._files = StreamWriters(run, writer, attempt)
        self._spill = StreamWriters(run, f"{writer}.spill", attempt)
        self._spill_lock = threading.Lock()
        self._changed = threading.Condition()
        self._queue: list[Record] = []
        self._seq = last_seq(run, writer, attempt) + 1
        self._accepted = self._done = self._waiting_bytes = self._cycles = 0
        self._dropped: Counter[str] = Counter()
        self._unreported: Counter[str] = Counter()
        self._failure: Exception | None = None
        self._urgent = self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"recorder-{writer}", daemon=True)
        self._thread.start()
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

    def episode(self, episode: Episode) -> None:
        """Record an episode with its tokens; never dropped."""
        self.record("episodes", {}, episode.counters, episode=episode)

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
        body = encode(dict(fields))
        with self._changed:
            self._refuse_if_broken()
            record = self._new_record(stream, body, counters or self.counters, episode)
            beside = record is not None and not self._enqueue(record)
        if record is not None and beside:
            self._write_beside(record)
        if fields.get("kind") == "attempt_started":
            self._mark_ready()

    @property
    def dropped(self) -> dict[str, int]:
        """Records lost to pressure so far, by stream."""
        with self._changed:
            return dict(self._dropped)

    def position(self) -> Position:
        """Where this writer stands; a checkpoint keeps it so that a resume cuts exactly here."""
        with self._changed:
            return Position(writer=self._writer, attempt=self._attempt, seq=self._seq - 1)

    def flush(self, *, sync: bool = False) -> None:
        """Return once the system has all records; `sync`: once the disk has.

        Tries again what failed before, and raises `RecordsError` if it still cannot be written.
        """
        with self._changed:
            target, begun = self._accepted, self._cycles
            while self._done < target:
                if not self._thread.is_alive():
                    self._refuse_if_broken()
                self._urgent = True
                self._changed.notify_all()
                self._changed.wait()
                if self._failure is not None and self._cycles >= begun + 2:
                    raise self._failure
        if sync:
            self._files.sync()
            with self._spill_lock:
                self._spill.sync()

    def close(self) -> None:
        """Write what waits and close the files; raises `RecordsError` if that fails."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._spill.close()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _refuse_if_broken(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise RuntimeError("the recorder is closed")

    def _new_record(
        self, stream: Stream, body: str, counters: Counters, episode: Episode | None
    ) -> Record | None:
        """None: there is no room, and this stream may be dropped."""
        size = 128 + len(body)
        if episode is not None:
            size += 16 * sum(len(path.token_ids) for path in episode.trajectories)
        if stream in DROPPABLE and not self._has_room(size):
            self._count_dropped(stream)
            return None
        now, monotonic = time.time(), time.monotonic()
        envelope = Envelope(self._writer, self._attempt, self._seq, now, monotonic, counters)
        self._seq += 1
        return Record(stream, envelope.seq, envelope.around(body), size, episode)

    def _has_room(self, size: int) -> bool:
        waiting = self._accepted - self._done
        return not waiting or (
            waiting < self._max_records and self._waiting_bytes + size <= self._max_bytes
        )

    def _enqueue(self, record: Record) -> bool:
        """Whether there was room for it."""
        if not self._has_room(record.size):
            return False
        self._queue.append(record)
        self._accepted += 1
        self._waiting_bytes += record.size
        if len(self._queue) in (1, self._max_records // 2):
            self._changed.notify_all()
        return True

    def _count_dropped(self, stream: Stream) -> None:
        self._dropped[stream] += 1
        self._unreported[stream] += 1

    def _write_beside(self, record: Record) -> None:
        """Write to the spill segment; wait for room in the queue only where that fails."""
        try:
            with self._spill_lock:
                self._spill.write([record])
        except OSError:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._failure is not None or self._has_room(record.size)
                )
                self._refuse_if_broken()
                self._enqueue(record)

    def _mark_ready(self) -> None:
        marker = self._run.attempt(self._attempt) / "ready"
        try:
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError as error:
            raise storage_error(error, marker) from error

    def _work(self) -> None:
        kept: list[Record] = []
        last = False
        while not last:
            with self._changed:
                self._await_records(bool(kept))
                batch, self._queue = kept + self._queue, []
                self._urgent = False
                last = self._closing
            kept = self._write(batch)
        if kept or self._unreported:
            self._write(kept)
        self._files.close()

    def _await_records(self, retrying: bool) -> None:
        """Sleep until there is something to write, and a moment longer for more to come."""
        if retrying:
            self._changed.wait_for(lambda: self._urgent or self._closing, RETRY_S)
            return
        self._changed.wait_for(lambda: self._queue or self._urgent or self._closing)
        self._changed.wait_for(
            lambda: self._urgent or self._closing or len(self._queue) >= self._max_records // 2,
            GATHER_S,
        )

    def _write(self, batch: list[Record]) -> list[Record]:
        """Write a batch; returns what must be tried again."""
        batch = batch + self._report_of_drops()
        failure: Exception | None
        try:
            failure, unwritten = self._files.write_each_stream(batch)
        except Exception as error:  # noqa: BLE001 - a thread's boundary: the next call raises it
            failure, unwritten = error, batch
        kept = [record for record in unwritten if record.stream not in DROPPABLE]
        pending = {record.seq for record in kept}
        with self._changed:
            for record in unwritten:
                if record.stream in DROPPABLE:
                    self._count_dropped(record.stream)
            done = [record for record in batch if record.seq not in pending]
            self._done += len(done)
            self._waiting_bytes -= sum(record.size for record in done)
            self._failure = failure if kept else None
            self._cycles += 1
            self._changed.notify_all()
        return kept

    def _report_of_drops(self) -> list[Record]:
        """An event with the counts of what was dropped since the last one."""
        with self._changed:
            if not self._unreported:
                return []
            body = encode({"kind": "records_dropped", "streams": dict(self._unreported)})
            self._unreported.clear()
            report = self._new_record("events", body, self.counters, None)
            assert report is not None, "events are never dropped"
            self._accepted += 1
            self._waiting_bytes += report.size
            return [report]
