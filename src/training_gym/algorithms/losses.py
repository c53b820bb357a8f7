"""Losses: pure functions of per-token tensors of shape (M,), each naming its paper.

All are sums over tokens of weight × something, where the weights carry the aggregation
(`token_weights`), so a batch may be cut anywhere without changing its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training_gym.spec.algorithms import Aggregation


def clipped_policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> torch.Tensor:
    """-Σ w · min(ρ A, clip(ρ, 1 - clip_low, 1 + clip_high) A), ρ = exp(logp - old logp).

    The clipped surrogate of PPO (Schulman et al. 2017, arXiv:1707.06347, equation 7) with the
    asymmetric bounds of DAPO (arXiv:2503.14476, equation 10).
    """
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    return -(weights * surrogate).sum()


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
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> torch.Tensor:
    """Share of tokens whose gradient the clipping removes."""
    ratio = torch.exp(logprobs - old_logprobs)
    lost = ((ratio > 1 + clip_high) & (advantages > 0)) | (
        (ratio < 1 - clip_low) & (advantages < 0)
    )
    return lost.float().mean()
