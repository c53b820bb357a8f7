"""Takes records from elsewhere into run directories: each once, from whoever has the run's token.

Records of one segment's writer, attempt and stream come in order, so the last sequence number that
lies on disk tells what is new; what was sent twice is taken once. Answered means written: a
collector that is killed afterwards loses nothing, and one that was killed before is sent it again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from training_gym.records.documents import (
    encode,
    read_document_if_any,
    storage_error,
    to_bytes,
    write_document,
)
from training_gym.records.readers import last_of_segments
from training_gym.records.remote import documents
from training_gym.records.remote.wire import Item, moved, unpack
from training_gym.records.run_directory import RunDirectory, Stream
from training_gym.records.segments import SegmentWriter, segments
from training_gym.spec.errors import GymError, RecordsError

OPEN_LANES = 256
"""Segments that stay open; of others the one least lately written is closed."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


class Unauthorized(RecordsError):
    """The token is not the run's, or there is no such run."""


@dataclass(frozen=True)
class Receipt:
    """What became of a request."""

    accepted: int
    """Records that are now on disk because of it."""
    duplicates: int
    """Records that were there already."""


def issue_write_token(run: RunDirectory) -> str:
    """A new token with which records may be sent to this run; the one before no longer holds.

    Only its hash is kept. Raises `RecordsError` where it cannot be.
    """
    token = secrets.token_urlsafe(32)
    write_document(_hash_path(run), {"sha256": _hash(token)})
    return token


class Collector:
    """Writes what it receives into the runs of a folder. For any number of threads."""

    def __init__(self, runs: Path) -> None:
        """Of the runs in `runs`; a run's records may only ever be received by one collector."""
        self._runs = runs
        self._lock = threading.Lock()
        self._lanes: OrderedDict[tuple[Path, str, int, Stream], _Lane] = OrderedDict()

    def receive(self, run_id: str, token: str, body: bytes) -> Receipt:
        """Take a request's records.

        Raises `Unauthorized`, or `RecordsError` for a body that is too large, is damaged, or cannot
        be written; then the whole request may be sent again.
        """
        run = self.authorize(run_id, token)
        items = unpack(body)
        with self._lock:
            accepted = sum(
                self._lane(run, together[0]).take(together, run) for together in _by_lane(items)
            )
        return Receipt(accepted, len(items) - accepted)

    def register(self, run_id: str, manifest: bytes) -> str:
        """Make room for a run and its write token; the run's earlier token no longer holds.

        Who may do this is for the caller to decide. Raises `RecordsError` or `SpecError` for what
        is no manifest of this run.
        """
        if not _RUN_ID.fullmatch(run_id):
            raise RecordsError(f"{run_id!r:.80} is no run id", fix="send the manifest's own")
        run = RunDirectory(self._runs / run_id)
        with self._lock:
            documents.register(run, manifest)
            return issue_write_token(run)

    def receive_document(self, run_id: str, token: str, name: str, body: bytes) -> None:
        """Keep one of the run's documents; raises as `receive` does."""
        run = self.authorize(run_id, token)
        with self._lock:
            documents.take(run, name, body)

    def authorize(self, run_id: str, token: str) -> RunDirectory:
        """The run, if the token is its own; raises `Unauthorized`, whatever is wrong."""
        refused = Unauthorized(
            "no run takes records with this token", fix="use the token the run was given"
        )
        if not _RUN_ID.fullmatch(run_id):
            raise refused
        run = RunDirectory(self._runs / run_id)
        try:
            known = read_document_if_any(_hash_path(run)) or {}
        except GymError:
            raise refused from None
        if not hmac.compare_digest(str(known.get("sha256", "")), _hash(token)):
            raise refused
        return run

    def close(self) -> None:
        """Close the files; what comes later opens new ones."""
        with self._lock:
            while self._lanes:
                self._lanes.popitem()[1].files.close()

    def _lane(self, run: RunDirectory, item: Item) -> _Lane:
        key = (run.path, *item.lane)
        lane = self._lanes.pop(key, None)
        if lane is None:
            lane = _Lane.open(run, item)
        self._lanes[key] = lane
        if len(self._lanes) > OPEN_LANES:
            self._lanes.popitem(last=False)[1].files.close()
        return lane


@dataclass
class _Lane:
    """One segment writer of one attempt and stream, and how far it has come."""

    files: SegmentWriter
    last: int

    @classmethod
    def open(cls, run: RunDirectory, item: Item) -> _Lane:
        writer, attempt, stream = item.lane
        folder = run.streams / stream
        mine = [one for one in segments(folder) if (one.writer, one.attempt) == (writer, attempt)]
        return cls(SegmentWriter(folder, writer, attempt), last_of_segments(mine))

    def take(self, items: list[Item], run: RunDirectory) -> int:
        """Append the records that are not there already; how many those are."""
        new: list[Item] = []
        for item in items:
            if item.seq > (new[-1].seq if new else self.last):
                new.append(item)
        try:
            for some in _with_their_blocks(new):
                self.files.roll_if_full()
                lines = [self._line(item) for item in some]
                self.files.write(to_bytes("".join(lines)))
                self.last = some[-1].seq
        except OSError as error:
            raise storage_error(error, run.streams / items[0].stream) from error
        return len(new)

    def _line(self, item: Item) -> str:
        base = self.files.write_tokens(item.blocks) if item.blocks else 0
        return encode(moved(item.record, base)) + "\n"


def _with_their_blocks(items: list[Item]) -> Iterator[list[Item]]:
    """What may be written at once: one with blocks by itself, so that its segment rolls in time."""
    for has_blocks, together in groupby(items, key=lambda item: bool(item.blocks)):
        if has_blocks:
            yield from ([item] for item in together)
        else:
            yield list(together)


def _by_lane(items: list[Item]) -> Iterator[list[Item]]:
    """Items that follow each other into one segment."""
    for _, together in groupby(items, key=lambda item: item.lane):
        yield list(together)


def _hash_path(run: RunDirectory) -> Path:
    return run.control / "write_token.json"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
