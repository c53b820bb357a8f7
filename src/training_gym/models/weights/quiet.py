"""Calls into transformers and peft: without their talk, and what they raise in our words."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

from training_gym.spec.errors import ModelError


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, log lines or warnings of transformers inside; the former state after."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextlib.contextmanager
def unusable(folder: Path) -> Iterator[None]:
    """Boundary with the loader: what it raises for files it cannot use is the user's to mend."""
    from safetensors import SafetensorError

    known = (ValueError, KeyError, TypeError, RuntimeError, OSError, ImportError, SafetensorError)
    try:
        yield
    except known as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"{folder} cannot be loaded: {lines[0]}",
            fix="fetch the model again; for a new architecture use a newer transformers",
        ) from error
