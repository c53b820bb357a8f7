"""Verdicts and alerts, assessed again only when a run has changed.

A run that nobody watched while it trained is replayed against the rules, which reads all of it; so
no page waits for this but the one that shows it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from training_gym.records.health.alerts import Assessment
from training_gym.records.health.assessment import Course, assess
from training_gym.records.index import RunRow
from training_gym.records.run_directory import RunDirectory

MOST_KEPT = 256
RUNNING_S = 5.0
"""How long an assessment of a running run holds: its heartbeat may fall silent meanwhile."""


class Assessments:
    """The newest assessment of each run asked for."""

    def __init__(self) -> None:
        """Nothing is assessed yet."""
        self._kept: OrderedDict[str, tuple[str, float, Assessment]] = OrderedDict()
        self._turns: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(
        self, run: RunDirectory, row: RunRow, rewards: Callable[[], Sequence[float]]
    ) -> Assessment:
        """The run's assessment; `row` tells whether the one we have still holds.

        `rewards` gives the mean reward of each batch, oldest first.
        """
        known = self._holding(run, row)
        if known is not None:
            return known
        with self._turn(run):  # whoever asks meanwhile waits for this answer, and makes none too
            return self._holding(run, row) or self._made(run, row, rewards())

    def _holding(self, run: RunDirectory, row: RunRow) -> Assessment | None:
        with self._lock:
            version, made, known = self._kept.get(run.run_id, ("", 0.0, None))
        fresh = row.status not in ("running", "queued") or time.monotonic() - made < RUNNING_S
        return known if version == row.version and fresh else None

    def _turn(self, run: RunDirectory) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(run.run_id, threading.Lock())

    def _made(self, run: RunDirectory, row: RunRow, rewards: Sequence[float]) -> Assessment:
        found = assess(run, course=Course(row.step, rewards))
        with self._lock:
            self._kept[run.run_id] = (row.version, time.monotonic(), found)
            self._kept.move_to_end(run.run_id)
            if len(self._kept) > MOST_KEPT:
                gone, _ = self._kept.popitem(last=False)
                self._turns.pop(gone, None)
        return found
