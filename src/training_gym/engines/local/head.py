"""Log-probabilities without the full logits: the vocabulary is expanded a chunk of rows at a time.

A loss that is a sum over tokens needs each token's log-probability only, so its gradient is taken
chunk by chunk: logits of `chunk` rows exist, are differentiated and dropped before the next. The
backbone is then differentiated once, from the gradient collected for the hidden states.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from training_gym.engines.local.network import Network

TokenLoss = Callable[[torch.Tensor, slice], torch.Tensor]
"""(log-probabilities of a chunk, which targets they are) -> that chunk's share of the loss."""


def target_logprobs(
    network: Network, hidden: torch.Tensor, targets: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Log p(target) of each hidden state, differentiable; one chunk's logits in memory."""
    logits = network.logits(hidden)
    if temperature != 1.0:
        logits = logits / temperature
    picked = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    return picked - torch.logsumexp(logits, dim=1)


def chunked_backward(
    network: Network,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    loss: TokenLoss,
    *,
    temperature: float,
    chunk: int,
) -> torch.Tensor:
    """Differentiate the sum of `loss` over all chunks; returns the log-probabilities (M,).

    Gradients are added to the head's weights and, through `hidden` (M, hidden), to the rest.
    """
    leaf = hidden.detach().requires_grad_()
    collected = []
    for start in range(0, leaf.shape[0], chunk):
        part = slice(start, min(start + chunk, leaf.shape[0]))
        logprobs = target_logprobs(network, leaf[part], targets[part], temperature)
        loss(logprobs, part).backward()  # type: ignore[no-untyped-call]
        collected.append(logprobs.detach())
    if hidden.requires_grad:
        hidden.backward(leaf.grad)  # type: ignore[no-untyped-call]
    return torch.cat(collected)


@torch.no_grad()
def chunked_logprobs(
    network: Network, hidden: torch.Tensor, targets: torch.Tensor, *, temperature: float, chunk: int
) -> torch.Tensor:
    """Log p(target) of each hidden state (M,), without gradients."""
    parts = [
        target_logprobs(
            network, hidden[start : start + chunk], targets[start : start + chunk], temperature
        )
        for start in range(0, hidden.shape[0], chunk)
    ]
    return torch.cat(parts) if parts else hidden.new_zeros(0, dtype=torch.float32)
