"""How much more probable the policy makes what was sampled: by token, or by whole trajectory."""

from __future__ import annotations

import torch

from training_gym.spec.algorithms import RatioLevel


def row_totals(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Sum of (M,) `values` over each row that appears in `rows` (M,), in ascending order: (R,)."""
    return _totals(values, rows)[0]


def row_sums(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Sum of (M,) `values` over each row, given back to every token of it: (M,)."""
    totals, dense = _totals(values, rows)
    return totals.index_select(0, dense)


def row_means(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Mean of (M,) `values` over each row, given back to every token of it: (M,)."""
    return row_sums(values, rows) / row_sums(torch.ones_like(values), rows)


def _totals(values: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of each row, and the place of each token's row among the sums."""
    known, dense = torch.unique(rows, sorted=True, return_inverse=True)
    empty = torch.zeros(len(known), dtype=values.dtype, device=values.device)
    return empty.index_add(0, dense, values), dense


def log_ratios(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, rows: torch.Tensor, level: RatioLevel
) -> torch.Tensor:
    """Log ρ of each token, (M,): new minus old log-probability, its own or its trajectory's.

    - `token`: log ρ_t = logp_t - old_t (PPO, GRPO);
    - `sequence_mean`: the mean over the trajectory, log of the geometric mean (GSPO,
      arXiv:2507.18071, equation 7);
    - `sequence_product`: the sum, the log-ratio of the whole answer (RLOO, arXiv:2402.14740).
    """
    difference = logprobs - old_logprobs
    if level == "token":
        return difference
    reduce = row_means if level == "sequence_mean" else row_sums
    return reduce(difference, rows)
