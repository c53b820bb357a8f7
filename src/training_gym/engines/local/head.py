"""Log-probabilities without the full logits: the vocabulary is expanded a chunk of rows at a time.

A loss that is a sum over tokens is differentiated chunk by chunk: logits of `chunk` rows exist, are
differentiated and dropped before the next. The backbone is then differentiated once, from the
gradient collected for the hidden states. What couples tokens (the ratio of a whole trajectory, a
pair of answers) needs all log-probabilities first: they are computed once without gradient, the
loss is differentiated with respect to them, and the chunks then carry those derivatives on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

CACHED_ROWS = 64
"""Rows of logits that are passed over together: about as many as a processor's cache holds."""


class Head(Protocol):
    """What turns hidden states into logits."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) in float32 of hidden states (n, hidden)."""
        ...


@dataclass(frozen=True)
class Chunk:
    """Some of a micro-batch's targets, while their logits exist."""

    part: slice
    """Which targets."""
    logits: torch.Tensor
    """(n, vocabulary), divided by the temperature. Unless `LossParts.reads_logits`, they have
    become exp(logits - their greatest)."""
    logprobs: torch.Tensor
    """(n,) of the targets."""


@dataclass(frozen=True)
class LossParts:
    """A micro-batch's share of the loss, as a sum of parts told apart by what they look at."""

    by_chunk: Callable[[Chunk], torch.Tensor] | None = None
    """A sum over targets."""
    reads_logits: bool = False
    """Whether `by_chunk` looks at all logits, not at the targets' log-probabilities only."""
    joint: Callable[[torch.Tensor], torch.Tensor] | None = None
    """A function of the log-probabilities of all targets (M,)."""
    by_state: Callable[[torch.Tensor], torch.Tensor] | None = None
    """A function of the hidden states (M, hidden) that predict the targets."""


class TargetLogprobs(torch.autograd.Function):
    """log softmax(logits)[target] of each row, in the memory of the logits.

    Logits of a chunk are by far the largest array there is. Written out they are copied four times
    on the way to a gradient; here they become exp(logits - max) in place, and then the gradient
    (1[target] - softmax) · ∂. What they were is lost: only for logits that nobody else reads.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See the class."""
        chosen = targets.unsqueeze(1)
        picked, totals = logits.gather(1, chosen), []
        start = 0
        for block in torch.split(logits, CACHED_ROWS):
            top = block.amax(dim=1, keepdim=True)
            picked[start : start + len(block)].sub_(top)
            totals.append(block.sub_(top).exp_().sum(dim=1, keepdim=True))
            start += len(block)
        ctx.weights, ctx.totals, ctx.chosen = logits, torch.cat(totals), chosen
        return (picked - torch.log(ctx.totals)).squeeze(1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """See the class; runs once."""
        gradient = gradient.unsqueeze(1)
        of_logits = ctx.weights.mul_(-gradient / ctx.totals)
        ctx.weights = None
        return of_logits.scatter_add_(1, ctx.chosen, gradient), None


def target_logits(
    head: Head,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    temperature: float,
    *,
    keep_logits: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tempered logits (n, vocabulary) and log p(target) (n,), differentiable.

    Unless `keep_logits`, only the log-probabilities are of use.
    """
    logits = head.logits(hidden)
    if temperature != 1.0:
        logits = logits / temperature
    if keep_logits:
        picked = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
        return logits, picked - torch.logsumexp(logits, dim=1)
    logprobs: torch.Tensor = TargetLogprobs.apply(logits, targets)  # type: ignore[no-untyped-call]
    return logits, logprobs


def chunked_backward(
    head: Head,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    loss: LossParts,
    *,
    temperature: float,
    chunk: int,
) -> tuple[float, torch.Tensor]:
    """Differentiate `loss`; returns its value and the log-probabilities (M,).

    Gradients are added to the head's weights and, through `hidden` (M, hidden), to the rest.
    """
    if not len(targets):  # answers in which a form left no choice
        return 0.0, hidden.new_zeros(0, dtype=torch.float32)
    leaf = hidden.detach().requires_grad_()
    total, carried = _differentiate_joint(
        head, leaf, targets, loss, temperature=temperature, chunk=chunk
    )
    collected = []
    for start in range(0, leaf.shape[0], chunk):
        part = slice(start, min(start + chunk, leaf.shape[0]))
        logits, logprobs = target_logits(
            head, leaf[part], targets[part], temperature, keep_logits=loss.reads_logits
        )
        share = torch.zeros((), device=leaf.device)
        if loss.by_chunk is not None:
            share = loss.by_chunk(Chunk(part, logits, logprobs))
            total = total + share.detach()
        if carried is not None:
            share = share + (logprobs * carried[part]).sum()
        share.backward()  # type: ignore[no-untyped-call]
        collected.append(logprobs.detach())
    if loss.by_state is not None:
        share = loss.by_state(leaf)
        total = total + share.detach()
        share.backward()  # type: ignore[no-untyped-call]
    if hidden.requires_grad:
        hidden.backward(leaf.grad)  # type: ignore[no-untyped-call]
    return float(total), torch.cat(collected)


def _differentiate_joint(
    head: Head,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    loss: LossParts,
    *,
    temperature: float,
    chunk: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The joint part's value, and its derivative with respect to each log-probability."""
    if loss.joint is None:
        return torch.zeros((), device=hidden.device), None
    found = chunked_logprobs(head, hidden, targets, temperature=temperature, chunk=chunk)
    found.requires_grad_()
    value = loss.joint(found)
    (derivative,) = torch.autograd.grad(value, found)
    return value.detach(), derivative


@torch.no_grad()
def chunked_logprobs(
    head: Head, hidden: torch.Tensor, targets: torch.Tensor, *, temperature: float, chunk: int
) -> torch.Tensor:
    """Log p(target) of each hidden state (M,), without gradients."""
    parts = [
        target_logits(
            head, hidden[start : start + chunk], targets[start : start + chunk], temperature
        )[1]
        for start in range(0, hidden.shape[0], chunk)
    ]
    return torch.cat(parts) if parts else hidden.new_zeros(0, dtype=torch.float32)
