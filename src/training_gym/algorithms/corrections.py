"""Weights for what trainer and sampler see differently although their weights are the same."""

from __future__ import annotations

import torch

from training_gym.algorithms.ratios import row_sums
from training_gym.spec.loss_terms import MIS, TIS, Correction, IcePop


def correction_weights(
    trainer_logprobs: torch.Tensor,
    sampler_logprobs: torch.Tensor,
    rows: torch.Tensor,
    correction: Correction,
) -> torch.Tensor:
    """Importance weight of each token (M,), bounded as `correction` says; without gradient.

    w = exp(trainer - sampler), of the token or of all its trajectory's tokens (`level`):

    - TIS: min(w, cap) (Yao et al. 2025; Ionides 2008);
    - MIS: w · 1[w ≤ cap] (Liu et al. 2025);
    - IcePop: w · 1[floor ≤ w ≤ cap], by token (arXiv:2510.18855, equation 3).

    Args:
        trainer_logprobs: the trainer's, under the weights that sampled.
        sampler_logprobs: recorded when the tokens were drawn.
        rows: which trajectory each token belongs to.
        correction: how to bound.
    """
    difference = (trainer_logprobs - sampler_logprobs).detach()
    if not isinstance(correction, IcePop) and correction.level == "sequence":
        difference = row_sums(difference, rows)
    weights = torch.exp(difference)
    if isinstance(correction, TIS):
        return weights.clamp(max=correction.cap)
    kept = weights <= correction.cap
    if not isinstance(correction, MIS):
        kept = kept & (weights >= correction.floor)
    return torch.where(kept, weights, torch.zeros_like(weights))
