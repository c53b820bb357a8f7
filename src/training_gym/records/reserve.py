"""A little room on disk, set aside while a job runs, so that a full disk can still be reported.

`attempts/<k>/reserve` is given up when the attempt ends; its end and the run's result then fit.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from training_gym.records.documents import storage_error
from training_gym.records.run_directory import RunDirectory

RESERVE_BYTES = 256 * 1024
"""Far more than an attempt's last documents take."""


def set_aside(run: RunDirectory, attempt: int) -> None:
    """Take the room; raises `RecordsError` where the disk is full already."""
    path = _place(run, attempt)
    try:
        # Random bytes: file systems that compress would give zeros no room at all.
        path.write_bytes(os.urandom(RESERVE_BYTES))
    except OSError as error:
        give_up(run, attempt)
        raise storage_error(error, path) from error


def give_up(run: RunDirectory, attempt: int) -> None:
    """Free the room; nothing happens where there is none."""
    with contextlib.suppress(OSError):
        _place(run, attempt).unlink(missing_ok=True)


def _place(run: RunDirectory, attempt: int) -> Path:
    return run.attempt(attempt) / "reserve"
