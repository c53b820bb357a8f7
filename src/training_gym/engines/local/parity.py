"""The passes in which training and sampling compute, on one short sequence.

`Network.check_parity` compares what they give with the model's own forward.
"""

from __future__ import annotations

from typing import Protocol

import torch

from training_gym.engines.local.attention import Layout, PackedLayout, Segment
from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.slot_layout import SlotLayout


class Passes(Protocol):
    """A network as far as its passes are asked for."""

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        ...

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Last hidden states (N, hidden) of N packed tokens."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) in float32 of hidden states (n, hidden)."""
        ...

    def next_logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: SlotLayout
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after one token in each of n rows."""
        ...


def packed_logprobs(network: Passes, ids: torch.Tensor) -> torch.Tensor:
    """Six tokens that two segments continue: three others, and the rest."""
    packed = torch.cat([ids[:6], ids[:3], ids[6:]])
    positions = torch.tensor([*range(6), 6, 7, 8, *range(6, 12)], device=network.device)
    layout = PackedLayout((Segment(0, 6), Segment(6, 3, (0,), 6), Segment(9, 6, (0,), 6)))
    logprobs = network.logits(network.hidden(packed, positions, layout)).log_softmax(-1)
    return torch.cat([logprobs[:6], logprobs[9:]])


def cached_logprobs(network: Passes, ids: torch.Tensor) -> torch.Tensor:
    """Ten tokens at once, then two steps, in one of two rows of different lengths."""
    cache = SlotCache(2)
    cache.reserve(len(ids))
    passes = (((10, 4), (0, 0)), ((1, 1), (10, 4)), ((1, 1), (11, 5)))
    found = []
    for lengths, starts in passes:
        spans = [range(start, start + n) for start, n in zip(starts, lengths, strict=True)]
        positions = torch.tensor([p for span in spans for p in span], device=network.device)
        layout = SlotLayout(cache, rows=(0, 1), lengths=lengths, starts=starts)
        if layout.is_decode:
            logits = network.next_logits(ids[positions], positions, layout)
        else:
            logits = network.logits(network.hidden(ids[positions], positions, layout))
        found.append(logits.log_softmax(-1)[: lengths[0]])
    return torch.cat(found)
