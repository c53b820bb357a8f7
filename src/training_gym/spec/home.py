"""Where runs, models and caches live."""

from __future__ import annotations

import os
from pathlib import Path

from training_gym.spec.errors import SpecError


def home() -> Path:
    """`$TRAINING_GYM_HOME`, from the current folder if it is relative; default `~/.training-gym`.

    Raises `SpecError` where the variable is set and names no folder.
    """
    named = os.environ.get("TRAINING_GYM_HOME")
    if named is None:
        return Path.home() / ".training-gym"
    if not named.strip():
        raise SpecError(
            "TRAINING_GYM_HOME is set, and empty",
            fix="unset it, which means ~/.training-gym, or name a folder",
        )
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError:
        raise SpecError(
            f"TRAINING_GYM_HOME = {named!r}: there is no such user", fix="name a folder"
        ) from None


def runs_directory() -> Path:
    """Where run directories lie."""
    return home() / "runs"


def models_directory() -> Path:
    """Where converted models lie."""
    return home() / "models"


def cache_directory() -> Path:
    """What can be deleted at any time."""
    return home() / "cache"
