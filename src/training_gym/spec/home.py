"""Where runs, models and caches live."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$TRAINING_GYM_HOME`, default `~/.training-gym`."""
    return Path(os.environ.get("TRAINING_GYM_HOME") or Path.home() / ".training-gym").expanduser()


def runs_directory() -> Path:
    """Where run directories lie."""
    return home() / "runs"


def models_directory() -> Path:
    """Where converted models lie."""
    return home() / "models"


def cache_directory() -> Path:
    """What can be deleted at any time."""
    return home() / "cache"
