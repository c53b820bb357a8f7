"""Rewards: run in killable processes, composed, and a library of scorers.

The names are imported when first used, because every worker imports this package and needs
neither the runner nor asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training_gym.rewards.judgement import Judgement
    from training_gym.rewards.runner import RewardRunner

__all__ = ["Judgement", "RewardRunner"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from training_gym.rewards import judgement, runner

    value = getattr(judgement if name == "Judgement" else runner, name)
    globals()[name] = value
    return value
