"""Sends a run's records from this disk to a collector, in order, until they have been taken.

How far it has come lies in `shipped.json` beside the streams. That file may be lost: the collector
takes nothing twice. While the collector cannot be reached, segments simply wait on disk.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import get_args

import httpx

from training_gym.records.documents import read_document_if_any, write_document
from training_gym.records.index.decode import record_of
from training_gym.records.lines import sidecar
from training_gym.records.remote.wire import Item, pack, references
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.segments import Segment, segments
from training_gym.spec.errors import GymError, RecordsError

BATCH_BYTES = 1024 * 1024
"""About what one request carries, unpacked."""
PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Shipper:
    """Ships one run. One at a time for each run and machine."""

    def __init__(
        self, run: RunDirectory, url: str, token: str, *, client: httpx.Client | None = None
    ) -> None:
        """To the collector at `url`, such as `https://host:port`, as the run `run.run_id`."""
        self._run = run
        self._url = f"{url.rstrip('/')}/api/v1/runs/{run.run_id}/records"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        self._client = client or httpx.Client(timeout=30.0)
        self._state = run.path / "shipped.json"
        self._offsets = self._read_state()

    def ship(self) -> int:
        """Send all that is new; how many records the collector took.

        Raises `RecordsError` where the collector cannot be reached or refuses; what was taken until
        then is not sent again.
        """
        sent = 0
        for stream in get_args(Stream):
            for segment in segments(self._run.streams / stream):
                for items, end in self._batches(stream, segment):
                    if items:
                        self._post(items)
                        sent += len(items)
                    self._offsets[f"{stream}/{segment.path.name}"] = end
                    self._write_state()
        return sent

    def run_until(self, stop: threading.Event) -> None:
        """Ship every second until told to stop, then what is left; wait longer after failures."""
        pause = PAUSE_S
        while True:
            last = stop.is_set()
            try:
                self.ship()
                pause = PAUSE_S
            except RecordsError:
                if last:
                    raise
                pause = min(2 * pause, LONGEST_PAUSE_S)
            if last:
                return
            stop.wait(pause)

    def _batches(self, stream: Stream, segment: Segment) -> Iterator[tuple[list[Item], int]]:
        """Whole lines not sent yet, and the offset behind them; damaged lines are passed over."""
        offset = self._offsets.get(f"{stream}/{segment.path.name}", 0)
        with contextlib.ExitStack() as files:
            lines = files.enter_context(segment.path.open("rb"))
            lines.seek(offset)
            blocks = self._sidecar(segment, files)
            items: list[Item] = []
            size = 0
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                record = record_of(line[:-1])
                if record is not None:
                    item = _with_blocks(stream, segment.writer, record, blocks)
                    items.append(item)
                    size += len(line) + len(item.blocks)
                if size >= BATCH_BYTES:
                    yield items, offset
                    items, size = [], 0
            if offset > self._offsets.get(f"{stream}/{segment.path.name}", 0):
                yield items, offset

    def _sidecar(self, segment: Segment, files: contextlib.ExitStack) -> int | None:
        path = sidecar(segment.path)
        if not path.exists():
            return None
        descriptor = os.open(path, os.O_RDONLY)
        files.callback(os.close, descriptor)
        return descriptor

    def _post(self, items: list[Item]) -> None:
        try:
            answer = self._client.post(self._url, content=pack(items), headers=self._headers)
        except httpx.HTTPError as error:
            raise RecordsError(
                f"the collector cannot be reached: {error}",
                fix="records wait on this disk and are sent once it answers",
            ) from error
        if answer.status_code != 200:
            with contextlib.suppress(ValueError, AttributeError):
                said = answer.json()
                raise RecordsError(
                    f"the collector refuses ({answer.status_code}): {said.get('error')}",
                    fix=str(said.get("fix")),
                )
            raise RecordsError(
                f"the collector answers {answer.status_code}", fix="look at its own log"
            )

    def _read_state(self) -> dict[str, int]:
        try:
            state = read_document_if_any(self._state) or {}
            return {str(name): int(offset) for name, offset in state.get("offsets", {}).items()}
        except (GymError, ValueError, TypeError, AttributeError):
            return {}  # sent again, taken once

    def _write_state(self) -> None:
        write_document(self._state, {"offsets": self._offsets, "at": time.time()})


def _with_blocks(
    stream: Stream, writer: str, record: dict[str, object], descriptor: int | None
) -> Item:
    """The record with the bytes it refers to, one block after another from offset 0."""
    found = list(references(record))
    if descriptor is None or not found:
        return Item(stream, writer, record)
    data = b""
    for reference in found:
        size = _size(reference)
        block = os.pread(descriptor, size, reference["offset"])
        reference["offset"] = len(data)
        data += block
    return Item(stream, writer, record, data)


def _size(reference: dict[str, object]) -> int:
    sizes = {"u32": 4, "i32": 4, "f32": 4, "f16": 2, "u8": 1}
    columns = reference["columns"]
    assert isinstance(columns, list)
    return sum(sizes[kind] * count for _, kind, count in columns)
