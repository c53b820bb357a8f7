"""Where the states of linear attention come from and go to, in training and in sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

if TYPE_CHECKING:
    from training_gym.engines.local.attention import Segment
    from training_gym.engines.local.slot_layout import SlotLayout

CHUNK_TOKENS = 64
"""The rule pads sequences to a multiple of this."""


class State(NamedTuple):
    """What a layer carries behind the last token of B sequences."""

    tail: torch.Tensor
    """(B, channels, kernel - 1) last inputs of the convolution."""
    matrix: torch.Tensor
    """(B, value heads, key dim, value dim), float32."""


@dataclass(frozen=True)
class Wave:
    """Segments computed side by side; none is another's prefix."""

    segments: tuple[int, ...]
    """Their numbers in the layout."""
    tokens: torch.Tensor
    """(B, L) places in the packed row; N, one past its end, where a segment is shorter than L."""
    lengths: torch.Tensor
    """(B,) tokens of each."""


class States(Protocol):
    """Where the states of one layer come from and go to in one pass."""

    def before(self, wave: Wave) -> State | None:
        """What the wave's segments start from; None: nothing came before them."""
        ...

    def after(self, wave: Wave, state: State) -> None:
        """Take what the segments end with."""
        ...

    def wanted(self, wave: Wave) -> bool:
        """Whether anybody needs what the wave ends with."""
        ...


class PackedStates:
    """States handed from prefixes to what follows them, within one layer of one pass."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._prefixes = {segment.prefix[-1] for segment in segments if segment.prefix}
        self._ended: dict[int, State] = {}

    def before(self, wave: Wave) -> State | None:
        """See `States`."""
        members = [self._segments[number] for number in wave.segments]
        if not members[0].prefix:
            return None  # a wave's segments are of one depth
        found = [self._ended[segment.prefix[-1]] for segment in members]
        return State(
            torch.stack([state.tail for state in found]),
            torch.stack([state.matrix for state in found]),
        )

    def after(self, wave: Wave, state: State) -> None:
        """See `States`."""
        for place, number in enumerate(wave.segments):
            start = self._segments[number].start
            if start in self._prefixes:
                self._ended[start] = State(state.tail[place], state.matrix[place])

    def wanted(self, wave: Wave) -> bool:
        """See `States`."""
        return any(self._segments[number].start in self._prefixes for number in wave.segments)


class SlotStates:
    """States of one layer kept in the rows of the cache."""

    def __init__(self, layout: SlotLayout, layer: int) -> None:
        self._layout = layout
        self._layer = layer

    def before(self, wave: Wave) -> State | None:
        """See `States`."""
        starts = [self._layout.starts[number] for number in wave.segments]
        if not any(starts):
            return None
        return self._layout.cache.states(self._layer, self._rows(wave), starts)

    def after(self, wave: Wave, state: State) -> None:
        """See `States`."""
        self._layout.cache.keep_states(self._layer, self._rows(wave), state)

    def wanted(self, wave: Wave) -> bool:
        """See `States`."""
        return True

    def _rows(self, wave: Wave) -> list[int]:
        return [self._layout.rows[number] for number in wave.segments]


def make_waves(
    starts: Sequence[int],
    lengths: Sequence[int],
    depths: Sequence[int],
    device: torch.device,
) -> tuple[Wave, ...]:
    """Group segments of one depth whose lengths need the same number of chunks.

    Args:
        starts: place of each segment's first token in the packed row; together they cover it.
        lengths: tokens of each, at least one.
        depths: how many prefixes come before each.
        device: where the index tensors are needed.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for number, (length, depth) in enumerate(zip(lengths, depths, strict=True)):
        single = length == 1  # one token takes the recurrent form, which needs no padding
        chunks = 0 if single else -(-length // CHUNK_TOKENS)
        groups.setdefault((depth, chunks), []).append(number)
    blank = sum(lengths)
    waves = []
    for _, members in sorted(groups.items()):
        longest = max(lengths[number] for number in members)
        rows = [
            [starts[n] + i if i < lengths[n] else blank for i in range(longest)] for n in members
        ]
        waves.append(
            Wave(
                tuple(members),
                torch.tensor(rows, device=device),
                torch.tensor([lengths[number] for number in members], device=device),
            )
        )
    return tuple(waves)
