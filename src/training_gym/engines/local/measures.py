"""What is measured of an update: how far trainer and sampler disagree, what bounds took away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from training_gym.algorithms.divergences import kl_estimates
from training_gym.engines.local.packing import MicroBatch
from training_gym.spec.episodes import SAMPLED, Trajectory

FIRST_UPDATE_ONLY = (
    "mismatch_mean",
    "mismatch_max",
    "sampler_mismatch_mean",
    "sampler_kl",
    "sampler_ratio_mean",
    "sampler_effective_share",
    "cache_mismatch_mean",
)
"""Only before the first update of a batch are trainer and sampler the same policy."""

LARGEST = (
    "ratio_max",
    "skipped",
    "training_peak_memory_gib",
    "training_predicted_peak_memory_gib",
)
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


@dataclass(frozen=True)
class Learned:
    """What an update saw of its targets (M), before it changed the weights."""

    micro: MicroBatch
    """All of them, as one; rows count the trajectories of the update's batch."""
    logprobs: torch.Tensor
    """(M,) the trainer's log-probabilities."""
    entropies: torch.Tensor | None = None
    """(M,) of the distributions that the targets were drawn from; None: not asked for."""


def same_policy_metrics(
    learned: Learned, trajectories: Sequence[Trajectory], version: int
) -> dict[str, float]:
    """Trainer against sampler on the tokens that the learning policy itself, `version`, drew.

    - `sampler_mismatch_mean`, `sampler_kl`, `sampler_ratio_mean`, `sampler_effective_share`: as
      those of `against_sampler`, on turns that no update of the weights fell into: kernels and
      precision, and nothing else;
    - `cache_mismatch_mean`: |trainer - sampler| of tokens behind an update in their turn, which
      were drawn from the new weights over keys and values of the old ones.

    What there are no tokens for is left out.
    """
    kinds = [_tokens_of(trajectory, version) for trajectory in trajectories]
    micro = learned.micro
    places = zip(micro.rows.tolist(), micro.places.tolist(), strict=True)
    drawn = torch.tensor([kinds[row][place] for row, place in places])
    found: dict[str, float] = {}
    whole, behind = ((drawn == kind).to(micro.rows.device) for kind in (_WHOLE, _BEHIND))
    if whole.any():
        seen = against_sampler(learned.logprobs[whole], micro.sampler_logprobs[whole])
        found = {
            "sampler_mismatch_mean": seen["mismatch_mean"],
            "sampler_kl": seen["kl_to_sampler"],
            "sampler_ratio_mean": seen["ratio_mean"],
            "sampler_effective_share": seen["effective_sample_share"],
        }
    if behind.any():
        difference = learned.logprobs[behind] - micro.sampler_logprobs[behind]
        found["cache_mismatch_mean"] = float(difference.abs().mean())
    return found


_OTHER, _WHOLE, _BEHIND = range(3)


def _tokens_of(trajectory: Trajectory, version: int) -> list[int]:
    """Of each token: whether `version` drew it, and its turn from the first token on."""
    kinds, begun_by, before = [], -1, 0
    for flag, drawn_by in zip(trajectory.flags, trajectory.versions, strict=True):
        if flag & SAMPLED and not before & SAMPLED:
            begun_by = drawn_by
        before = flag
        kind = _WHOLE if begun_by == version else _BEHIND
        kinds.append(kind if flag & SAMPLED and drawn_by == version else _OTHER)
    return kinds


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
        if name in FIRST_UPDATE_ONLY:
            merged[name] = updates[0][name]
            continue
        values = [metrics[name] for metrics in updates]
        if name in LATEST:
            merged[name] = values[-1]
        elif name in LARGEST:
            merged[name] = max(values)
        else:
            merged[name] = sum(values) / (1 if name in SUMMED else len(values))
    return merged
