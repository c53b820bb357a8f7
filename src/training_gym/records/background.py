"""The thread that writes records, and what happens when it cannot keep up.

When the queue is full, metrics, logs, spans and columns for display are dropped, counted, and the
count is recorded as an event; everything else is written at once by the caller into a segment of
its own (`<writer>.spill`), where readers put it back in order.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from training_gym.records.documents import encode
from training_gym.records.lines import Envelope, Record, StreamWriters
from training_gym.records.readers import last_seq
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.tokens import Block
from training_gym.spec.episodes import Counters, Episode

DROPPABLE: frozenset[Stream] = frozenset({"metrics", "logs", "spans", "tokens"})
GATHER_S = 0.05
"""How long the thread waits for company before it writes a lone record."""
RETRY_S = 1.0
"""How long the thread waits before it tries again to write what a full disk refused."""


class BackgroundWriter:
    """One writer's queue, thread and files, in one attempt. For any number of threads."""

    def __init__(
        self, run: RunDirectory, writer: str, attempt: int, max_records: int, max_bytes: int
    ) -> None:
        self._writer, self._attempt = writer, attempt
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

    def put(
        self,
        stream: Stream,
        body: str,
        counters: Counters,
        episode: Episode | None = None,
        columns: Block | None = None,
    ) -> None:
        """Take a record; `body` is the JSON of its fields.

        Raises what the thread met when it last wrote, while that stands in the way.
        """
        with self._changed:
            self._refuse_if_broken()
            record = self._new_record(stream, body, counters, episode, columns)
            beside = record is not None and not self._enqueue(record)
        if record is not None and beside:
            self._write_beside(record)

    @property
    def dropped(self) -> dict[str, int]:
        """Records lost to pressure so far, by stream."""
        with self._changed:
            return dict(self._dropped)

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest record; -1: none."""
        with self._changed:
            return self._seq - 1

    def flush(self, *, sync: bool = False) -> None:
        """See `Recorder.flush`."""
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
        """See `Recorder.close`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._spill.close()
        if self._failure is not None:
            raise self._failure

    def _refuse_if_broken(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise RuntimeError("the recorder is closed")

    def _new_record(
        self,
        stream: Stream,
        body: str,
        counters: Counters,
        episode: Episode | None = None,
        columns: Block | None = None,
    ) -> Record | None:
        """None: there is no room, and this stream may be dropped."""
        size = 128 + len(body)
        if episode is not None:
            size += 16 * sum(len(path.token_ids) for path in episode.trajectories)
        if columns is not None:
            size += len(columns.data)
        if stream in DROPPABLE and not self._has_room(size):
            self._count_dropped(stream)
            return None
        now, monotonic = time.time(), time.monotonic()
        envelope = Envelope(self._writer, self._attempt, self._seq, now, monotonic, counters)
        self._seq += 1
        text = envelope.around(body)
        return Record(stream, envelope.seq, text, size, episode, columns)

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
            report = self._new_record("events", body, Counters())
            assert report is not None, "events are never dropped"
            self._accepted += 1
            self._waiting_bytes += report.size
            return [report]
