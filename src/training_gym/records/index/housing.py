"""Where the index of a home lies."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from training_gym.spec.home import cache_directory, runs_directory


def index_folder() -> Path:
    """`cache/index` of the home; without runs, or where it is read-only, one of this process.

    Looking makes no home: a mistyped one would be left behind.
    """
    if not runs_directory().is_dir():
        return _passing()
    folder = cache_directory() / "index"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _passing()
    return folder if os.access(folder, os.W_OK | os.X_OK) else _passing()


def _passing() -> Path:
    """A folder that is deleted when the process ends."""
    folder = tempfile.mkdtemp(prefix="training-gym-index-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
