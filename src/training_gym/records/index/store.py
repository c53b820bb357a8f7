"""One run's database: opened, shared by threads and processes, thrown away when it is no good.

It lies in the viewer's cache. Whatever is wrong with it — another layout, a damaged page, a file
that became shorter than what was read of it — the answer is to delete it and read the run again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from training_gym.records.documents import storage_error
from training_gym.records.index.schema import LAYOUT, TABLES
from training_gym.records.run_directory import RunDirectory
from training_gym.records.segments import segments
from training_gym.spec.errors import RecordsError

T = TypeVar("T")

WAIT_S = 60.0
"""How long one process waits for another that is writing."""
LARGE_BYTES = 8 * 1024 * 1024
"""Of metrics or episodes: such a run's new database gets large pages."""
LARGE_PAGE_BYTES = 32 * 1024
"""A chunk of a column takes one or two, and it is their number that writing costs. A small run's
tables would each leave most of one empty."""
_POOLED = 4
OPEN_RUNS = 64
"""Runs whose databases stay open."""


class Stale(Exception):
    """What was indexed is not what lies on disk: the database must be built anew."""


class RunStore:
    """Connections to one run's database. For any number of threads."""

    def __init__(self, run: RunDirectory, path: Path) -> None:
        """The database at `path`; it need not exist."""
        self.run = run
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer from one consistent state; a database that is damaged is rebuilt, once."""
        for again in (True, False):
            try:
                with self.connection() as connection:
                    return question(connection)
            except (sqlite3.DatabaseError, Stale) as error:
                if not again or not is_damage(error):
                    raise self._error(error) from error
                self.discard()
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own for a while."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or not self.path.exists():
            if connection is not None:
                connection.close()
            connection = self._open()
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.rollback()
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < _POOLED:
                self._idle.append(connection)
                return
        connection.close()

    def discard(self) -> None:
        """Delete the database; the next question builds it again."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).unlink()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self.path) from error
        connection = sqlite3.connect(
            self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Tables, once; settings that a disposable database may have."""
        if not self.path.stat().st_size and _is_large(self.run):
            connection.execute(f"PRAGMA page_size = {LARGE_PAGE_BYTES}")
        _wal(connection)
        connection.execute("PRAGMA synchronous = OFF")  # it can be rebuilt
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute("PRAGMA mmap_size = 268435456")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == LAYOUT:
            return
        if version != 0:
            raise Stale(f"layout {version}")
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in TABLES.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('epoch', ?)", (uuid.uuid4().hex[:12],))
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        connection.execute("COMMIT")

    def _error(self, error: Exception) -> RecordsError:
        if "locked" in str(error) or "busy" in str(error):
            return RecordsError(
                f"the index {self.path} is being written by another process ({error})",
                fix="try again; if no other viewer runs, delete that file",
            )
        return RecordsError(
            f"the index {self.path} cannot be used: {error}",
            fix="delete it, or set TRAINING_GYM_HOME to a disk with room; it is built again",
        )


def _is_large(run: RunDirectory) -> bool:
    """Whether there is much to read already."""
    sizes = (
        sum(segment.path.stat().st_size for segment in segments(run.streams / stream))
        for stream in ("metrics", "episodes")
    )
    return max(sizes) >= LARGE_BYTES


class RunStores:
    """The stores of many runs, of which some stay open. For any number of threads."""

    def __init__(self, folder: Path) -> None:
        """Their databases lie in `folder`."""
        self._folder = folder
        self._open: OrderedDict[str, RunStore] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: RunDirectory) -> RunStore:
        """The run's store; the one least lately asked for is closed where too many are open."""
        with self._lock:
            store = self._open.pop(run.run_id, None)
            if store is None:
                store = RunStore(run, self._folder / f"{run.run_id}.sqlite")
            self._open[run.run_id] = store
            spare = None if len(self._open) <= OPEN_RUNS else self._open.popitem(last=False)[1]
        if spare is not None:
            spare.close()
        return store

    def close(self) -> None:
        """Close all; they open again when asked."""
        with self._lock:
            stores, self._open = list(self._open.values()), OrderedDict()
        for store in stores:
            store.close()


def is_damage(error: Exception) -> bool:
    """Whether deleting the database helps, rather than waiting or freeing room."""
    if isinstance(error, Stale):
        return True
    text = str(error)
    return not any(word in text for word in ("locked", "busy", "full", "readonly", "disk I/O"))


def _wal(connection: sqlite3.Connection) -> None:
    """Write-ahead log, where the file system can: readers then never wait for a writer."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # Changing the mode takes an exclusive lock, for which SQLite does not wait.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
