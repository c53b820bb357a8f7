"""Losses of pairs: a chosen answer and a rejected one to the same prompt."""

from __future__ import annotations

import torch
from torch.nn import functional

from training_gym.spec.algorithms import DPO, SimPO


def preference_margins(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
) -> torch.Tensor:
    """H = (chosen - its reference) - (rejected - its reference), of each pair: (P,).

    Log-probabilities of whole answers, or their means over tokens. β h is the difference of the
    implicit rewards of DPO (Rafailov et al. 2023, arXiv:2305.18290, equation 5).
    """
    return (chosen - reference_chosen) - (rejected - reference_rejected)


def dpo_loss(margins: torch.Tensor, algorithm: DPO) -> torch.Tensor:
    """Loss of each pair, (P,), from its margin h.

    - `sigmoid`: -(1 - ε) log σ(β h) - ε log σ(-β h), with ε the label smoothing
      (arXiv:2305.18290, equation 7; Mitchell 2023);
    - `ipo`: (h - 1 / (2 β))² (Azar et al. 2023, arXiv:2310.12036, equation 17).
    """
    if algorithm.loss == "ipo":
        return (margins - 1 / (2 * algorithm.beta)) ** 2
    scaled = algorithm.beta * margins
    smoothing = algorithm.label_smoothing
    right, wrong = functional.logsigmoid(scaled), functional.logsigmoid(-scaled)
    return -(1 - smoothing) * right - smoothing * wrong


def simpo_loss(margins: torch.Tensor, algorithm: SimPO) -> torch.Tensor:
    """-log σ(β h - γ) of each pair, (P,), h the difference of mean log-probabilities.

    Meng et al. 2024, arXiv:2405.14734, equation 6.
    """
    return -functional.logsigmoid(algorithm.beta * margins - algorithm.margin)
