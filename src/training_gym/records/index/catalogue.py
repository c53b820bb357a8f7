"""Rows of all runs in one small database, so that a list opens no run that has not changed."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from training_gym.records.documents import storage_error
from training_gym.records.index.run_values import RunRow
from training_gym.records.index.standing import ACTIVE, with_age
from training_gym.records.index.tailing import uncollected

LAYOUT = 1
INDEXING_S = 0.1
"""How long a listing reads runs that no index has seen, before it answers with what it has."""
_WATCHED = (
    *("result.json", "attempts", "streams/annotations", "streams/alerts"),
    "streams/metrics",
)
"""What changes of an ended run: it goes on, ends again, somebody says something of it, or records
come late from another machine."""


class Catalogue:
    """The newest known row of each run."""

    def __init__(self, runs: Path, path: Path) -> None:
        """Of the runs in the folder `runs`; the database at `path` need not exist."""
        self._runs = runs
        self._path = path
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[str, RunRow]] = {}
        self._loaded = False

    def rows(self, light: Callable[[str], RunRow], full: Callable[[str], RunRow]) -> list[RunRow]:
        """A row of every run.

        `full` reads a run's index, `light` its documents. Active runs and those that changed are
        read in full; runs that no index has seen are as far as `INDEXING_S` reaches, newest first.
        """
        with self._lock, uncollected():
            self._load()
            names = self._names()
            deadline = time.monotonic() + INDEXING_S
            rows, changed = [], []
            for name in sorted(names, reverse=True):
                mark = fingerprint(f"{self._runs}/{name}")
                known = self._rows.get(name)
                if known is not None and known[0] == mark and known[1].status not in ACTIVE:
                    if known[1].indexed or time.monotonic() > deadline:
                        rows.append(known[1])
                        continue
                elif known is None and time.monotonic() > deadline:
                    row = light(name)
                    self._rows[name] = (mark, row)
                    rows.append(row)
                    continue
                row = full(name)
                if known is None or known != (mark, row):
                    changed.append((name, mark, row))
                self._rows[name] = (mark, row)
                rows.append(row)
            for gone in self._rows.keys() - names:
                del self._rows[gone]
            self._save(changed)
        return [with_age(row) for row in rows]

    def discard(self) -> None:
        """Forget everything."""
        with self._lock:
            self._rows.clear()
            self._loaded = False
            _delete(self._path)

    def _names(self) -> set[str]:
        try:
            with os.scandir(self._runs) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise storage_error(error, self._runs) from error
        return {
            name
            for name in names
            if name in self._rows or os.path.exists(f"{self._runs}/{name}/manifest.json")
        }

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        with contextlib.suppress(sqlite3.Error, ValueError), self._open() as connection:
            for name, mark, text in connection.execute("SELECT run_id, mark, row FROM runs"):
                self._rows[name] = (mark, RunRow.model_validate_json(text))

    def _save(self, changed: Iterable[tuple[str, str, RunRow]]) -> None:
        """Keep rows of runs that have ended; others are read anew anyway."""
        kept = [
            (name, mark, row.model_dump_json())
            for name, mark, row in changed
            if row.status not in ACTIVE and row.indexed
        ]
        if not kept:
            return
        try:
            with self._open() as connection:
                connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", kept)
                connection.commit()
        except sqlite3.DatabaseError:
            _delete(self._path)  # it only saves time: the next listing fills a new one

    @contextlib.contextmanager
    def _open(self):  # type: ignore[no-untyped-def]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=5.0)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != LAYOUT:
                connection.execute("DROP TABLE IF EXISTS runs")
                connection.execute(
                    "CREATE TABLE runs (run_id TEXT PRIMARY KEY, mark TEXT, row TEXT)"
                )
                connection.execute(f"PRAGMA user_version = {LAYOUT}")
                connection.commit()
            yield connection
        finally:
            connection.close()


def fingerprint(run: str) -> str:
    """Changes when a run ends, starts anew, or gets a segment of annotations, alerts or metrics.

    `run` is the folder's path; lists of a thousand runs have no time to build paths with care.
    """
    marks = []
    for name in _WATCHED:
        try:
            marks.append(os.stat(f"{run}/{name}").st_mtime_ns)
        except OSError:
            marks.append(0)
    return ",".join(map(str, marks))


def _delete(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
