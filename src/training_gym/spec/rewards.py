"""What a reward is, as a value that travels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from training_gym.spec.code import Code, CodeRef
from training_gym.spec.errors import SpecError
from training_gym.spec.settings import Settings

GROUP_MARK = "__training_gym_group_reward__"

F = TypeVar("F", bound=Callable[..., Any])


def group_reward(function: F) -> F:
    """Mark a reward that sees a whole group: `(episodes) -> list of rewards`, one an episode."""
    setattr(function, GROUP_MARK, True)
    return function


class RewardPart(Settings):
    """One reward in a weighted composition."""

    name: str
    reward: CodeRef
    weight: float = Field(1.0, allow_inf_nan=False)


class WeightedReward(Settings):
    """The weighted sum of several rewards; each is kept as a component.

    If one part cannot judge the episode (`None`), the whole cannot.
    """

    parts: tuple[RewardPart, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> WeightedReward:
        names = [part.name for part in self.parts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two parts are called {twice!r}")
        return self


def weighted(**parts: Any) -> WeightedReward:
    """Compose rewards: `weighted(correct=(boxed_math, 1.0), brief=(short, 0.2))`.

    A part given without a weight has weight 1.
    """
    built = []
    for name, part in parts.items():
        reward, weight = part if isinstance(part, tuple) else (part, 1.0)
        built.append(RewardPart(name=name, reward=Code.of(reward), weight=weight))
    if not built:
        raise SpecError("weighted() was given no rewards", fix="weighted(correct=(function, 1.0))")
    return WeightedReward(parts=tuple(built))


def _as_reward(value: Any) -> Any:
    if isinstance(value, WeightedReward | Code):
        return value
    if isinstance(value, dict):
        return WeightedReward.read(value) if "parts" in value else Code.read(value)
    if isinstance(value, list | tuple):
        return weighted(**{Code.of(part).name: part for part in value})
    return Code.of(value)


RewardSpec = Annotated[WeightedReward | Code, BeforeValidator(_as_reward)]
"""A field that takes a function, a library scorer, a list of them or `weighted(…)`."""
