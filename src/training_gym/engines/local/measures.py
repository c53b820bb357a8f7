"""What is measured of an update: how far trainer and sampler disagree, what bounds took away."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training_gym.algorithms.divergences import kl_estimates

FIRST_UPDATE_ONLY = ("mismatch_mean", "mismatch_max")
"""Only before the first update of a batch are trainer and sampler the same policy."""

LARGEST = ("ratio_max", "skipped")
"""Of several updates the largest counts, of all other measurements the mean."""

SUMMED = ("train_tokens", "train_seconds", "target_tokens")

LATEST = ("learning_rate", "value_learning_rate")


def against_sampler(logprobs: torch.Tensor, sampler_logprobs: torch.Tensor) -> dict[str, float]:
    """Trainer against sampler on the same tokens (M,).

    - `mismatch_mean`, `mismatch_max`: |trainer - sampler| of the log-probabilities;
    - `ratio_mean`, `ratio_max`: ρ = exp(trainer - sampler);
    - `effective_sample_share`: (Σ ρ)² / (M Σ ρ²) (Kong 1992): 1 where all tokens count alike;
    - `kl_to_sampler_k1`, `kl_to_sampler`: KL(sampler ‖ trainer) by k1 and k3.
    """
    difference = logprobs - sampler_logprobs
    ratio = torch.exp(difference)
    share = ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum())
    return {
        "mismatch_mean": float(difference.abs().mean()),
        "mismatch_max": float(difference.abs().max()),
        "ratio_mean": float(ratio.mean()),
        "ratio_max": float(ratio.max()),
        "effective_sample_share": float(share),
        "kl_to_sampler_k1": float(kl_estimates(sampler_logprobs, logprobs, "k1").mean()),
        "kl_to_sampler": float(kl_estimates(sampler_logprobs, logprobs, "k3").mean()),
    }


def explained_variance(values: torch.Tensor, returns: torch.Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where the returns are all equal."""
    spread = returns.var(unbiased=False)
    if not spread > 0:
        return 0.0
    return float(1 - (returns - values).var(unbiased=False) / spread)


def over_updates(updates: Sequence[dict[str, float]]) -> dict[str, float]:
    """One batch's metrics from those of each of its updates."""
    if not updates:
        return {}
    merged = {}
    for name in updates[0]:
        values = [metrics[name] for metrics in updates]
        if name in FIRST_UPDATE_ONLY:
            merged[name] = values[0]
        elif name in LATEST:
            merged[name] = values[-1]
        elif name in LARGEST:
            merged[name] = max(values)
        else:
            merged[name] = sum(values) / (1 if name in SUMMED else len(values))
    return merged
