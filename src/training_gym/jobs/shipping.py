"""Sending a run's records to its collector while it trains: a thread of the job runner.

It only reads what was recorded. Where the collector cannot be reached, records wait on this disk;
what still waits when the job has ended goes with the next attempt, or by `training-gym sync`.
"""

from __future__ import annotations

import sys
import threading
from contextlib import closing

from training_gym.records.remote import Link, Shipper
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError


class Shipping:
    """Ships one run, if it has a collector. `close()` sends what is left, then stops."""

    def __init__(self, run: RunDirectory) -> None:
        """Begin at once."""
        self._run = run
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="shipping", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return once everything was sent, or the collector failed to take it."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            link = Link.of(self._run)
            if link is None:
                return
            with closing(Shipper(self._run, link)) as shipper:
                shipper.run_until(self._closing)
            if shipper.refused:
                _say(f"the collector took all records but {shipper.refused}, which it refused")
        except GymError as error:
            command = f"training-gym sync {self._run.run_id} --to collector"
            _say(f"{error.message}; send what waits: {command}")
        except Exception as error:  # noqa: BLE001 - a thread's boundary: training goes on unshipped
            _say(f"records are no longer shipped: {error!r}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - into the attempt's output.log
