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
from dataclasses import dataclass
from pathlib import Path

from training_gym.records.documents import (
    encode,
    read_document_if_any,
    storage_error,
    to_bytes,
    write_document,
)
from training_gym.records.readers import last_of_segments
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
            accepted = sum(self._take(run, item) for item in items)
        return Receipt(accepted, len(items) - accepted)

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

    def _take(self, run: RunDirectory, item: Item) -> bool:
        key = (run.path, *item.lane)
        lane = self._lanes.pop(key, None)
        if lane is None:
            lane = _Lane.open(run, item)
        self._lanes[key] = lane
        if len(self._lanes) > OPEN_LANES:
            self._lanes.popitem(last=False)[1].files.close()
        return lane.take(item, run)


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

    def take(self, item: Item, run: RunDirectory) -> bool:
        """Append the record unless it is there already; whether it was new."""
        if item.seq <= self.last:
            return False
        try:
            self.files.roll_if_full()
            base = self.files.write_tokens(item.blocks) if item.blocks else 0
            self.files.write(to_bytes(encode(moved(item.record, base)) + "\n"))
        except OSError as error:
            raise storage_error(error, run.streams / item.stream) from error
        self.last = item.seq
        return True


def _hash_path(run: RunDirectory) -> Path:
    return run.control / "write_token.json"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
