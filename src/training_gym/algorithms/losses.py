"""Losses: pure functions of per-token tensors of shape (M,), each naming its paper.

All are sums over tokens of weight × something, where the weights carry the aggregation
(`token_weights`), so a batch may be cut anywhere without changing its gradient. Log-ratios come
from `ratios.log_ratios`, at the level of a token or of a trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training_gym.spec.algorithms import Aggregation


def clipped_policy_loss(
    log_ratios: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> torch.Tensor:
    """-Σ w · min(ρ A, clip(ρ, 1 - clip_low, 1 + clip_high) A), ρ = exp(log ratio).

    The clipped surrogate of PPO (Schulman et al. 2017, arXiv:1707.06347, equation 7) with the
    asymmetric bounds of DAPO (arXiv:2503.14476, equation 10). With `dual_clip` c, where A < 0 it is
    max(that, c A) (Ye et al. 2020, arXiv:1912.09729, equation 5). With log-ratios of trajectories
    it is the surrogate of GSPO (arXiv:2507.18071, equation 5).
    """
    ratio = torch.exp(log_ratios)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is not None:
        bounded = torch.maximum(surrogate, dual_clip * advantages)
        surrogate = torch.where(advantages < 0, bounded, surrogate)
    return -(weights * surrogate).sum()


def bounded_weight_loss(
    logprobs: torch.Tensor,
    log_ratios: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    *,
    ratio_max: float,
) -> torch.Tensor:
    """-Σ w · min(ρ, ratio_max) A logp, the ratio held constant: CISPO.

    MiniMax-M1 (arXiv:2506.13585, equations 4 and 5), without a lower bound, as there. No token's
    gradient is stopped, only its weight is bounded.
    """
    held = torch.exp(log_ratios.detach()).clamp(max=ratio_max)
    return -(weights * held * advantages * logprobs).sum()


def value_loss(
    values: torch.Tensor,
    targets: torch.Tensor,
    old_values: torch.Tensor,
    weights: torch.Tensor,
    *,
    value_clip: float | None,
) -> torch.Tensor:
    """Σ w · ½ max((V - G)², (clip(V, V_old ± value_clip) - G)²); unclipped where it is None.

    Targets with clipping as in PPO's own code (Schulman et al. 2017; Engstrom et al. 2020,
    arXiv:2005.12729, section 3): a step away from the old value never lowers the loss further.
    """
    squared = (values - targets) ** 2
    if value_clip is not None:
        near = old_values + (values - old_values).clamp(-value_clip, value_clip)
        squared = torch.maximum(squared, (near - targets) ** 2)
    return (weights * squared).sum() / 2


def likelihood_loss(logprobs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """-Σ w · logp: maximum likelihood, for supervised fine-tuning."""
    return -(weights * logprobs).sum()


def token_weights(
    masks: Sequence[Sequence[bool]],
    shares: Sequence[float],
    *,
    aggregation: Aggregation,
    max_response_tokens: int,
) -> list[list[float]]:
    """Weight of every token of every trajectory in the batch's loss; 0 where the mask is off.

    `shares` are each trajectory's part of its episode (they sum to 1 over an episode), so that
    splitting an episode into several trajectories never changes its weight:

    - `sequence_mean`: every episode has the same weight, spread over its tokens (GRPO);
    - `token_mean`: every token of the batch has the same weight (DAPO);
    - `constant`: every token weighs 1 / (episodes × max_response_tokens) (Dr. GRPO).
    """
    num_episodes = sum(shares)
    num_tokens = sum(sum(mask) for mask in masks)
    weights = []
    for mask, share in zip(masks, shares, strict=True):
        length = sum(mask)
        if aggregation == "sequence_mean":
            weight = share / (num_episodes * length) if length else 0.0
        elif aggregation == "token_mean":
            weight = 1.0 / num_tokens if num_tokens else 0.0
        else:
            weight = 1.0 / (num_episodes * max_response_tokens)
        weights.append([weight if on else 0.0 for on in mask])
    return weights


def clipped_fraction(
    log_ratios: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> torch.Tensor:
    """Share of tokens whose gradient the clipping removes."""
    ratio = torch.exp(log_ratios)
    lost = ((ratio > 1 + clip_high) & (advantages > 0)) | (
        (ratio < 1 - clip_low) & (advantages < 0)
    )
    if dual_clip is not None:
        lost = lost | ((ratio > dual_clip) & (advantages < 0))
    return lost.float().mean()
