"""Splits a change of a mean into parts that add up to it: deterministic arithmetic, no model.

Two groups of plays, before and after. With classes c (lengths, outcomes, tasks), shares p and class
means r, the change is Σ (p₁-p₀)(r₀+r₁)/2 + Σ (r₁-r₀)(p₀+p₁)/2: what came from other shares, and
what came from other rewards at equal class (Kitagawa 1955, Journal of the American Statistical
Association 50, p. 1168).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training_gym.records.health.plays import Play
from training_gym.records.means import mean_of


@dataclass(frozen=True)
class Change:
    """A mean before and after."""

    before: float
    after: float
    error: float
    """Standard error of the difference."""

    @property
    def difference(self) -> float:
        """After - before."""
        return self.after - self.before

    @property
    def is_clear(self) -> bool:
        """Whether it is more than two standard errors."""
        return abs(self.difference) > 2 * self.error


@dataclass(frozen=True)
class Split:
    """The two parts of a change."""

    shares: float
    """What came from other shares of the classes."""
    rewards: float
    """What came from other rewards within them."""


def change_of(before: Sequence[float], after: Sequence[float]) -> Change:
    """Means of two samples and the error of their difference; both must have values."""
    error = math.sqrt(
        statistics.pvariance(before) / len(before) + statistics.pvariance(after) / len(after)
    )
    return Change(mean_of(before), mean_of(after), error)


def split_by(
    before: Sequence[Play], after: Sequence[Play], kind: Callable[[Play], str]
) -> Split | None:
    """The change of the mean reward split by a class; None where all are of one class."""
    found = [_by_class(plays, kind) for plays in (before, after)]
    names = sorted(found[0].keys() | found[1].keys())
    if len(names) < 2:
        return None
    shares = rewards = 0.0
    for name in names:
        own = [part.get(name, []) for part in found]
        weights = [len(own[0]) / len(before), len(own[1]) / len(after)]
        # A class that one side lacks has no reward there: its own other mean stands in, so that
        # all of its part counts as a change of shares.
        means = [
            mean_of(values) if values else mean_of(own[1 - side]) for side, values in enumerate(own)
        ]
        shares += (weights[1] - weights[0]) * (means[0] + means[1]) / 2
        rewards += (means[1] - means[0]) * (weights[0] + weights[1]) / 2
    return Split(shares, rewards)


def length_classes(plays: Sequence[Play], count: int = 4) -> Callable[[Play], str]:
    """Classes of about equal size by length, over all these plays."""
    lengths = sorted(play.length for play in plays)
    bounds = sorted({lengths[len(lengths) * at // count] for at in range(1, count)})

    def kind(play: Play) -> str:
        return str(sum(play.length >= bound for bound in bounds))

    return kind


def _by_class(plays: Sequence[Play], kind: Callable[[Play], str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for play in plays:
        found.setdefault(kind(play), []).append(play.reward or 0.0)
    return found
