"""Advantages from the rewards of one group."""

from __future__ import annotations

import math
from collections.abc import Sequence


def group_relative(rewards: Sequence[float], *, normalize_by_std: bool) -> list[float]:
    """Reward minus the group's mean, over its standard deviation if asked.

    A_i = (r_i - mean(r)) / (std(r) + 1e-4), with the sample standard deviation (n - 1), as in
    GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2); without the division it is the
    advantage of Dr. GRPO (Liu et al. 2025, arXiv:2503.20783). All zeros where rewards are equal
    or the group has one episode.
    """
    count = len(rewards)
    if count < 2 or max(rewards) == min(rewards):
        return [0.0] * count
    mean = math.fsum(rewards) / count
    centred = [reward - mean for reward in rewards]
    if not normalize_by_std:
        return centred
    std = math.sqrt(math.fsum(value * value for value in centred) / (count - 1))
    return [value / (std + 1e-4) for value in centred]


def overlong_penalty(length: int, limit: int, buffer: int, penalty: float) -> float:
    """What DAPO takes from the reward of an answer that comes near the limit.

    0 up to `limit - buffer` tokens, then linearly down to `-penalty` at the limit
    (arXiv:2503.14476, equation 13).
    """
    if buffer <= 0:
        return 0.0
    excess = length - (limit - buffer)
    return -penalty * min(max(excess / buffer, 0.0), 1.0)
