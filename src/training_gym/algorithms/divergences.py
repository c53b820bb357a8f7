"""KL between policies, from single sampled tokens or from whole distributions."""

from __future__ import annotations

import math

import torch

from training_gym.spec.loss_terms import KLEstimator


def kl_estimates(
    logprobs: torch.Tensor, reference_logprobs: torch.Tensor, estimator: KLEstimator
) -> torch.Tensor:
    """Estimate of KL(policy ‖ reference) from each sampled token, (M,).

    With log r = reference - logp: k1 = -log r, k2 = (log r)² / 2, k3 = r - 1 - log r (Schulman
    2020). Drawn from the policy, k1 and k3 have the KL as their mean; k2 is biased, with little
    variance.
    """
    log_r = reference_logprobs - logprobs
    if estimator == "k1":
        return -log_r
    if estimator == "k2":
        return log_r**2 / 2
    return torch.expm1(log_r) - log_r


def kl_loss(
    logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    weights: torch.Tensor,
    *,
    estimator: KLEstimator,
    exact_gradient: bool,
) -> torch.Tensor:
    """Σ w · KL estimate, to be differentiated.

    As they stand the estimators have other gradients than the KL they estimate (Tang & Munos 2025,
    arXiv:2506.09477): the mean of ∇k1 is 0, that of ∇k2 is ∇KL(policy ‖ reference) as long as the
    policy sampled the tokens itself, that of ∇k3 is ∇KL(reference ‖ policy).

    With `exact_gradient` each has the mean ∇KL(policy ‖ reference), whatever policy sampled: k1 and
    k3 are multiplied by ρ = exp(logp - old), which makes their mean the KL as a function of the
    policy (DeepSeek-V3.2, arXiv:2512.02556, section 3.1); k2 by ρ held constant.
    """
    estimates = kl_estimates(logprobs, reference_logprobs, estimator)
    if exact_gradient:
        ratio = torch.exp(logprobs - old_logprobs)
        estimates = (ratio.detach() if estimator == "k2" else ratio) * estimates
    return (weights * estimates).sum()


def entropies(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of each row of (n, vocabulary) `logits`: (n,).

    H = log Σ exp z - Σ p z. What an entropy bonus adds (arXiv:1602.01783, section 4).
    """
    normalizer = torch.logsumexp(logits, dim=-1)
    return normalizer - (torch.softmax(logits, dim=-1) * logits).sum(-1)


def generalized_jensen_shannon(
    student_logits: torch.Tensor, teacher_logits: torch.Tensor, mixture: float
) -> torch.Tensor:
    """Divergence of student and teacher at each position, (n,), from (n, vocabulary) logits.

    With β = `mixture` and M = β P + (1 - β) Q for teacher P and student Q:
    β KL(P ‖ M) + (1 - β) KL(Q ‖ M) (Agarwal et al. 2023, arXiv:2306.13649, equation 1); at the
    ends, where that vanishes, its limits after division: β = 0 is the forward KL(P ‖ Q), β = 1 the
    reverse KL(Q ‖ P). Entries that only one vocabulary has (padding) are left out.
    """
    size = min(student_logits.shape[-1], teacher_logits.shape[-1])
    student = torch.log_softmax(student_logits[..., :size], dim=-1)
    teacher = torch.log_softmax(teacher_logits[..., :size], dim=-1)
    if mixture == 0:
        return _kl(teacher, student)
    if mixture == 1:
        return _kl(student, teacher)
    middle = torch.logaddexp(teacher + math.log(mixture), student + math.log1p(-mixture))
    return mixture * _kl(teacher, middle) + (1 - mixture) * _kl(student, middle)


def _kl(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(first ‖ second) of log-probabilities, over the last axis."""
    return (first.exp() * (first - second)).sum(-1)
