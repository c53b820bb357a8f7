"""Why a reward did not move, as far as the records tell."""

from __future__ import annotations

from training_gym.records.health.compared import Compared
from training_gym.records.health.explained_parts import Ends, Part, rewards_of
from training_gym.records.health.plays import Plays
from training_gym.records.means import mean_of

_COARSE = 0.02
"""Distance to the group's mean, as a share of the rewards' range, below which nothing is told."""


def why_flat(ends: Ends, moved: Compared | None) -> Part | None:
    """The likeliest cause; None without groups. What an evaluation measured comes first.

    Args:
        ends: what is compared.
        moved: an evaluation that moved beyond chance meanwhile.
    """
    groups = Plays(tuple(ends.after)).groups
    if not groups or not Plays(tuple(ends.before)).groups:
        return None
    return Part(kind="cause", name="flat", text=f"the reward did not move: {_why(ends, moved)}")


def _why(ends: Ends, moved: Compared | None) -> str:
    if moved is not None and moved.way == "rose":
        return (
            f"yet evaluation {moved.name} rose by {moved.difference}, so it learns; the rewards in "
            "training are too few or too noisy to show it"
        )
    new = Plays(tuple(ends.after))
    if 2 * len(new.equal_groups) > len(new.groups):
        return "most groups got equal rewards, so most episodes taught nothing"
    if ends.scale > 0 and _spread(new) < _COARSE * ends.scale:
        return "rewards hardly differ within groups: the reward may be too coarse"
    signal = "rewards differ within groups, so there is a signal"
    if moved is not None:
        return (
            f"{signal}, and the updates do something: evaluation {moved.name} fell by "
            f"{moved.difference}"
        )
    return f"{signal}: the updates may be too small"


def _spread(plays: Plays) -> float:
    """Mean distance of a reward to its group's mean."""
    return mean_of(
        [
            abs(reward - mean_of(rewards_of(group)))
            for group in plays.groups
            for reward in rewards_of(group)
        ]
    )
