"""An update in parts: what its micro-batches add up to, and what one of several trainers had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from training_gym.engines.local.packing import MicroBatch, joined, numbered

Parts = Iterator[dict[str, float] | None]
"""A step under way: None for each micro-batch, and the metrics with the update."""


@dataclass(frozen=True)
class Part:
    """What one of several trainers computed of an update."""

    loss: float
    packed_tokens: int
    micro: MicroBatch
    """Its targets; `rows` are numbers among those of the whole batch."""
    logprobs: torch.Tensor
    """(M,) of the targets."""
    entropies: torch.Tensor
    """(M,) of their distributions; (0,) where they were not asked for."""
    counts: bool
    """False: there was nothing to do, and what was computed has no weight."""

    @classmethod
    def of(
        cls,
        micros: Sequence[MicroBatch],
        mine: Sequence[int],
        loss: float,
        logprobs: Sequence[torch.Tensor],
        entropies: Sequence[torch.Tensor],
    ) -> Part:
        """The part of a trainer whose rows have the numbers `mine`."""
        together = joined(micros)
        return cls(
            loss=loss,
            packed_tokens=sum(micro.num_tokens for micro in micros),
            micro=numbered(together, mine or range(len(together.rows))),
            logprobs=torch.cat(list(logprobs)).cpu(),
            entropies=torch.cat([torch.empty(0), *(each.cpu() for each in entropies)]),
            counts=bool(mine),
        )


@dataclass
class Taken:
    """What the micro-batches of an update add up to."""

    loss: float = 0.0
    largest: int = 0
    """Packed tokens of the largest one."""
    seconds: float = 0.0
    micros: list[MicroBatch] = field(default_factory=list)
    logprobs: list[torch.Tensor] = field(default_factory=list)
    entropies: list[torch.Tensor] = field(default_factory=list)

    def add(
        self,
        micro: MicroBatch,
        loss: float,
        logprobs: torch.Tensor,
        entropies: torch.Tensor | None,
    ) -> None:
        """Take in one."""
        self.loss += loss
        self.largest = max(self.largest, micro.num_tokens)
        self.micros.append(micro)
        self.logprobs.append(logprobs)
        self.entropies += [] if entropies is None else [entropies]

    def drop(self) -> None:
        """Begin anew; the seconds are spent."""
        self.loss, self.largest = 0.0, 0
        for kept in (self.micros, self.logprobs, self.entropies):
            kept.clear()
