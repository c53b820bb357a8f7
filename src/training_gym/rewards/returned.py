"""What a reward function may return, read strictly: anything else is a failure, never a zero.

* a number (bool, int, float, a numpy scalar): the reward;
* a dictionary of named numbers: the components; the reward is their sum, or the entry called
  `reward` if there is one, which then is no component;
* a `Score`;
* `None`, also as a component: the episode could not be judged.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Sequence
from typing import Any

from training_gym.rewards.judgement import NOT_JUDGED, Judgement, failed, scored
from training_gym.spec.episodes import Score, is_countable

TOTAL = "reward"
"""Key of a returned dictionary that holds the reward itself."""


class _NotAReward(Exception):
    """Says what the function did, beginning with a verb."""


def read_returned(value: Any) -> Judgement:
    """The judgement that one returned value stands for."""
    try:
        score = _score(value)
    except _NotAReward as error:
        return failed("invalid", str(error))
    return NOT_JUDGED if score is None else scored(score)


def read_group(values: Any, num_episodes: int) -> list[Judgement]:
    """The judgements of a group reward: one value an episode."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        reason = f"returned {_shown(values)} instead of a list with one reward an episode"
        _discard(values)
    elif len(values) != num_episodes:
        reason = f"returned {len(values)} rewards for {num_episodes} episodes"
    else:
        return [read_returned(value) for value in values]
    return [failed("invalid", reason)] * num_episodes


def _score(value: Any) -> Score | None:
    if value is None:
        return None
    if isinstance(value, Score):
        _check(value.value, "a Score of")
        for name, component in value.components.items():
            _check(component, f"{name!r} =")
        _check_all("turns", value.turns or ())
        _check_all("agents", tuple((value.agents or {}).values()))
        return value
    if isinstance(value, dict):
        return _from_components(value)
    return Score(value=_number(value, ""))


def _from_components(value: dict[Any, Any]) -> Score | None:
    if not value:
        raise _NotAReward("returned an empty dictionary, which is no reward")
    wrong = next((name for name in value if not isinstance(name, str)), None)
    if wrong is not None:
        raise _NotAReward(f"returned a component called {_shown(wrong)}; names are strings")
    if any(component is None for component in value.values()):
        return None
    numbers_by_name = {name: _number(item, f"{name!r} = ") for name, item in value.items()}
    if TOTAL in numbers_by_name:
        total = numbers_by_name.pop(TOTAL)
    else:
        total = _check(math.fsum(numbers_by_name.values()), "components that sum to")
    return Score(value=total, components=numbers_by_name)


def _number(value: Any, name: str) -> float:
    if not isinstance(value, numbers.Real) and getattr(value, "shape", None) == ():
        # A numpy scalar or a tensor without dimensions, without importing either.
        value = value.item()
    if not isinstance(value, numbers.Real):
        shown = _shown(value)
        _discard(value)
        raise _NotAReward(f"returned {name}{shown}, which is no reward")
    try:
        number = float(value)
    except OverflowError:
        raise _NotAReward(f"returned {name}{_shown(value)}, which is too large") from None
    return _check(number, name.removesuffix(" "))


def _check(number: float, name: str) -> float:
    if is_countable(number):
        return number
    why = "larger than can be computed with" if math.isfinite(number) else "no reward"
    raise _NotAReward(f"returned {name} {number}, which is {why}".replace("  ", " "))


def _check_all(name: str, values: Sequence[float]) -> None:
    for number in values:
        _check(number, f"{name} with")


def _shown(value: Any) -> str:
    """The value and its type, whatever its own `__repr__` does."""
    try:
        text = repr(value)
    # The boundary to a class of the user's, whose repr may fail in any way.
    except Exception:  # noqa: BLE001
        text = "a value"
    text = text if len(text) <= 80 else text[:79] + "…"
    return f"{text} ({type(value).__name__})"


def _discard(value: Any) -> None:
    """A coroutine that nobody awaits warns unless it is closed."""
    if inspect.iscoroutine(value):
        value.close()
