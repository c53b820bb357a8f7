"""Saying where in the user's own code an exception came from."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from training_gym.spec.errors import GymError

_OURS = str(Path(__file__).parents[1])
_FOREIGN = tuple({_OURS, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))})


def describe_error(error: BaseException) -> str:
    """Type, message and the innermost line of the user's code, in one line."""
    text = f"{error.message}; {error.fix}" if isinstance(error, GymError) else _message(error)
    summary = f"{type(error).__name__}: {' '.join(text.split())[:300]}".removesuffix(": ")
    where = _where(error)
    return f"{summary} ({where})" if where else summary


def _message(error: BaseException) -> str:
    try:
        return str(error)
    # The boundary to an exception class of the user's, whose str may fail in any way.
    except Exception:  # noqa: BLE001
        return ""


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(("<frozen", *_FOREIGN))]
    if not theirs:
        return ""
    last = theirs[-1]
    code = f": {last.line.strip()[:80]}" if last.line else ""
    return f"{Path(last.filename).name}, line {last.lineno}{code}"
