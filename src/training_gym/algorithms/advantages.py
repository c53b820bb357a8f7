"""Advantages: pure functions of rewards, each naming its paper."""

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


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Reward minus the mean of the group's others.

    A_i = r_i - Σ_{j≠i} r_j / (n - 1), which is n / (n - 1) times the distance from the mean
    (RLOO, Ahmadian et al. 2024, arXiv:2402.14740, section 3.1; Kool et al. 2019). All zeros where
    rewards are equal or the group has one episode.
    """
    count = len(rewards)
    if count < 2:
        return [0.0] * count
    return [count / (count - 1) * value for value in group_centred(rewards)]


def group_centred(rewards: Sequence[float]) -> list[float]:
    """Reward minus the group's mean; the baseline of REINFORCE++-baseline (arXiv:2501.03262)."""
    return group_relative(rewards, normalize_by_std=False)


def token_rewards(
    reward: float, length: int, penalties: Sequence[float] | None = None
) -> list[float]:
    """A trajectory's reward at its last sampled token, less a penalty on each.

    r_t = 1[t = T] r - penalty_t, the reward of Ouyang et al. 2022 (arXiv:2203.02155, equation 2)
    with penalty_t = β KL_t spread over the tokens it belongs to.
    """
    rewards = [0.0] * length if penalties is None else [-penalty for penalty in penalties]
    if rewards:
        rewards[-1] += reward
    return rewards


def returns_to_go(rewards: Sequence[float], discount: float = 1.0) -> list[float]:
    """G_t = r_t + γ G_{t+1}: what REINFORCE++ takes as a token's advantage (arXiv:2501.03262)."""
    found = [0.0] * len(rewards)
    following = 0.0
    for place in reversed(range(len(rewards))):
        following = rewards[place] + discount * following
        found[place] = following
    return found


def gae(
    rewards: Sequence[float], values: Sequence[float], *, discount: float, gae_lambda: float
) -> tuple[list[float], list[float]]:
    """Generalised advantage estimates and the value targets that go with them.

    δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γ λ A_{t+1}, with V = 0 behind the end (Schulman et
    al. 2015, arXiv:1506.02438, equations 11 to 16); the target is A_t + V_t, the λ-return.

    Args:
        rewards: of each sampled token of one agent's path.
        values: estimate of the state each of these tokens was drawn in.
        discount: γ.
        gae_lambda: λ.
    """
    advantages = [0.0] * len(rewards)
    advantage = next_value = 0.0
    for place in reversed(range(len(rewards))):
        surprise = rewards[place] + discount * next_value - values[place]
        advantage = surprise + discount * gae_lambda * advantage
        advantages[place] = advantage
        next_value = values[place]
    targets = [a + v for a, v in zip(advantages, values, strict=True)]
    return advantages, targets


def normalized(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """All rows' values, less their common mean, over their common standard deviation + 1e-8.

    Over every token of the batch, as REINFORCE++ (arXiv:2501.03262) and common PPO do; the
    standard deviation is the population's.
    """
    every = [value for row in rows for value in row]
    if not every:
        return [list(row) for row in rows]
    mean = math.fsum(every) / len(every)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in every) / len(every))
    return [[(value - mean) / (std + 1e-8) for value in row] for row in rows]


def overlong_penalty(length: int, limit: int, buffer: int, penalty: float) -> float:
    """What DAPO takes from the reward of an answer that comes near the limit.

    0 up to `limit - buffer` tokens, then linearly down to `-penalty` at the limit
    (arXiv:2503.14476, equation 13).
    """
    if buffer <= 0:
        return 0.0
    excess = length - (limit - buffer)
    return -penalty * min(max(excess / buffer, 0.0), 1.0)
