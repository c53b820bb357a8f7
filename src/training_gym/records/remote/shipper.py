"""Sends a run's records from this disk to a collector, in order, until they have been taken.

How far it has come lies in `shipped.json` beside the streams. That file may be lost: the collector
takes nothing twice. While the collector cannot be reached, segments simply wait on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from training_gym.records.documents import read_document_if_any, write_document
from training_gym.records.index.decode import record_of
from training_gym.records.lines import sidecar
from training_gym.records.remote.documents import travelling
from training_gym.records.remote.link import Link, Refused, new_client, request
from training_gym.records.remote.wire import Item, pack, references
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.segments import Segment, segments
from training_gym.spec.errors import GymError, RecordsError

if TYPE_CHECKING:
    import httpx

BATCH_BYTES = 1024 * 1024
"""About what one request carries, unpacked."""
PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Shipper:
    """Ships one run; `close()` it. Several at once do no harm: what comes twice is taken once."""

    def __init__(
        self, run: RunDirectory, link: Link, *, client: httpx.Client | None = None
    ) -> None:
        """Ship the run `run.run_id` over its link."""
        self._run, self._token = run, link.token
        self._url = f"{link.url.rstrip('/')}/api/v1/runs/{run.run_id}"
        self._client = client or new_client()
        self._state = run.path / "shipped.json"
        self._offsets, self._sent = self._read_state()
        self.refused = 0
        """Records that the collector will never take: no record at all, or too large for it."""

    def ship(self) -> int:
        """Send all that is new; how many records were sent.

        The result goes last, so that a run that seems to have ended there is whole. Raises
        `RecordsError` where the collector cannot be reached or refuses; what was taken until then
        is not sent again.
        """
        names = list(travelling(self._run))
        ending = [name for name in names if name == "result.json"]
        self._ship_documents([name for name in names if name not in ending])
        sent = self._ship_streams()
        self._ship_documents(ending)
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

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ship_streams(self) -> int:
        sent = 0
        for stream in get_args(Stream):
            for segment in segments(self._run.streams / stream):
                for items, end in self._batches(stream, segment):
                    self._post(items)
                    sent += len(items)
                    self._offsets[f"{stream}/{segment.path.name}"] = end
                    self._write_state()
        return sent

    def _ship_documents(self, names: list[str]) -> None:
        for name in names:
            body = (self._run.path / name).read_bytes()
            digest = hashlib.sha256(body).hexdigest()
            if self._sent.get(name) == digest:
                continue
            try:
                request(self._client, "PUT", f"{self._url}/documents/{name}", self._token, body)
            except Refused as error:
                if not error.is_about_the_content:
                    raise
            self._sent[name] = digest
            self._write_state()

    def _batches(self, stream: Stream, segment: Segment) -> Iterator[tuple[list[Item], int]]:
        """Whole lines not sent yet, and the offset behind them; damaged lines are passed over."""
        offset = self._offsets.get(f"{stream}/{segment.path.name}", 0)
        if segment.path.stat().st_size <= offset:
            return
        with contextlib.ExitStack() as files:
            lines = files.enter_context(segment.path.open("rb"))
            lines.seek(offset)
            blocks = self._sidecar(segment, files)
            items: list[Item] = []
            begun, size = offset, 0
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
                    items, begun, size = [], offset, 0
            if offset > begun:
                yield items, offset

    def _sidecar(self, segment: Segment, files: contextlib.ExitStack) -> int | None:
        path = sidecar(segment.path)
        if not path.exists():
            return None
        descriptor = os.open(path, os.O_RDONLY)
        files.callback(os.close, descriptor)
        return descriptor

    def _post(self, items: list[Item]) -> None:
        """Send records; one that is refused for what it is does not keep others from going."""
        if not items:
            return
        try:
            request(self._client, "POST", f"{self._url}/records", self._token, pack(items))
        except Refused as error:
            if not error.is_about_the_content:
                raise
            if len(items) == 1:
                self.refused += 1
                return
            half = len(items) // 2
            self._post(items[:half])
            self._post(items[half:])

    def _read_state(self) -> tuple[dict[str, int], dict[str, str]]:
        try:
            state: dict[str, Any] = read_document_if_any(self._state) or {}
            offsets = {str(name): int(offset) for name, offset in state["offsets"].items()}
            return offsets, dict(state.get("documents", {}))
        except (GymError, ValueError, LookupError, TypeError, AttributeError):
            return {}, {}  # sent again, taken once

    def _write_state(self) -> None:
        state = {"offsets": self._offsets, "documents": self._sent, "at": time.time()}
        write_document(self._state, state)


def _with_blocks(
    stream: Stream, writer: str, record: dict[str, Any], descriptor: int | None
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


def _size(reference: dict[str, Any]) -> int:
    sizes = {"u32": 4, "i32": 4, "f32": 4, "f16": 2, "u8": 1}
    return sum(sizes[kind] * count for _, kind, count in reference["columns"])
