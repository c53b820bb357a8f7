"""Keeping answers within a length."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from training_gym.spec.episodes import Episode
from training_gym.spec.settings import Settings


class LengthShaping(Settings):
    """1 between `low` and `high`, falling linearly to 0 over `soft` units outside (as in DAPO)."""

    unit: Literal["tokens", "words"] = "tokens"
    """What is counted: sampled tokens of the episode, or words of the completion."""
    low: int = Field(0, ge=0)
    high: int = Field(ge=1)
    soft: int = Field(0, ge=0)
    """Units beyond a limit at which nothing is left; 0: the limits are hard."""

    @model_validator(mode="after")
    def _in_order(self) -> LengthShaping:
        if self.low > self.high:
            raise ValueError(f"low={self.low} is above high={self.high}")
        return self

    def __call__(self, episode: Episode) -> float:
        """Score the length."""
        tokens = self.unit == "tokens"
        length = episode.num_tokens if tokens else len(episode.completion.split())
        beyond = max(self.low - length, length - self.high, 0)
        return max(0.0, 1.0 - beyond / (self.soft + 1)) if beyond else 1.0
