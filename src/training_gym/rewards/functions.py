"""Reward functions, loaded: what they are called, what they take, how they are run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.rewards.faults import describe_error
from training_gym.spec.code import Code
from training_gym.spec.errors import GymError, RewardError
from training_gym.spec.rewards import GROUP_MARK


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A function ready to be called."""

    call: Callable[[Any], Any]
    is_group: bool
    """It takes all episodes of a group and returns one reward for each."""
    is_async: bool


def load_function(code: Code, name: str) -> RewardFunction:
    """Import the function; raises `RewardError` that names it and says what went wrong."""
    try:
        found = code.load()
        if inspect.isclass(found):
            found = found()
    except GymError as error:
        raise RewardError(
            f"reward {name!r} cannot be loaded: {error.message}", fix=error.fix
        ) from None
    # The boundary to the user's module, whose import may fail in any way, `sys.exit` included.
    except BaseException as error:  # noqa: BLE001
        raise RewardError(
            f"reward {name!r} cannot be loaded: {describe_error(error)}",
            fix=f"make `import {code.module}` work by itself",
        ) from None
    if not callable(found):
        raise RewardError(
            f"reward {name!r} is a {type(found).__name__}, which cannot be called",
            fix="give a function that takes the episode",
        )
    method = type(found).__call__
    return RewardFunction(
        call=found,
        is_group=bool(getattr(found, GROUP_MARK, False) or getattr(method, GROUP_MARK, False)),
        is_async=inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(method),
    )


def extend_path(entries: Sequence[str]) -> None:
    """Make modules of these folders importable here: the first before everything, the rest after.

    The first is where the user's source lies; the others are where the caller finds modules.
    """
    first, *others = entries
    if first:
        sys.path[:] = [first, *(entry for entry in sys.path if entry != first)]
    sys.path += [entry for entry in others if entry not in sys.path]
