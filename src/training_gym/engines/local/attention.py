"""Attention over packed tokens, for training and for decoding, inside any `transformers` model.

A model called with `attn_implementation="training_gym"` skips its own masks and hands query, key
and value of every layer to `attend`, together with the `layout` given to the model's forward. The
batch dimension is always 1: all sequences of a pass lie one after another in one row, so no
padding is ever computed. What may see what is the layout's business:

- `PackedLayout` (training): segments, each causal in itself and after a chain of prefixes, so a
  group's prompt is computed once for all its answers.
- `slot_layout.SlotLayout` (sampling): every segment appends to a row of the key/value cache.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from training_gym.engines.local.kernels import LayerOptions, attend_segment, causal_mask
from training_gym.engines.local.recurrent_states import PackedStates, States, Wave, make_waves

IMPLEMENTATION = "training_gym"
"""Name under which the attention is registered with `transformers`."""


class Layout(Protocol):
    """Where the tokens of a pass belong."""

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """Attend; query (1, H, N, D), key and value (1, K, N, D), result (1, H, N, D)."""
        ...

    def waves(self, device: torch.device) -> Sequence[Wave]:
        """See `recurrence.RecurrentLayout`."""
        ...

    def states(self, layer: int) -> States:
        """See `recurrence.RecurrentLayout`."""
        ...


class Segment(NamedTuple):
    """A run of packed tokens: causal in itself, after the whole of each prefix."""

    start: int
    length: int
    prefix: tuple[int, ...] = ()
    """Starts of the segments that come before it, in order."""
    prefix_length: int = 0
    """Tokens of the prefix, which is also the position of the segment's first token."""


@dataclass
class PackedLayout:
    """Segments of one packed row, in order; together they cover it."""

    segments: tuple[Segment, ...]
    _masks: dict[tuple[int, int, int | None], torch.Tensor | None] = field(default_factory=dict)
    _waves: tuple[Wave, ...] | None = None

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """See `Layout`."""
        # Split once: the backward of a split is one concatenation, that of many slices is a sum of
        # as many whole tensors of zeros.
        lengths = [segment.length for segment in self.segments]
        parts = (torch.split(whole, lengths, dim=2) for whole in (query, key, value))
        queries, keys, values = (_by_start(self.segments, part) for part in parts)
        outputs = []
        for alike in self._alike:
            starts = [segment.start for segment in alike]
            mask = self._mask(alike[0], options.window, query.device)
            output = attend_segment(
                _beside(queries, (), starts),
                _beside(keys, alike[0].prefix, starts),
                _beside(values, alike[0].prefix, starts),
                mask,
                options,
            )
            outputs.append(output.transpose(0, 1).flatten(1, 2).unsqueeze(0))
        return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]

    @functools.cached_property
    def _alike(self) -> list[list[Segment]]:
        """Neighbours of equal length after the same prefix, which are computed as one batch."""
        groups = itertools.groupby(self.segments, lambda segment: segment[1:])
        return [list(group) for _, group in groups]

    def waves(self, device: torch.device) -> Sequence[Wave]:
        """See `recurrence.RecurrentLayout`."""
        if self._waves is None:
            self._waves = make_waves(
                [segment.start for segment in self.segments],
                [segment.length for segment in self.segments],
                [len(segment.prefix) for segment in self.segments],
                device,
            )
        return self._waves

    def states(self, layer: int) -> States:
        """See `recurrence.RecurrentLayout`."""
        return PackedStates(self.segments)

    def _mask(
        self, segment: Segment, window: int | None, device: torch.device
    ) -> torch.Tensor | None:
        total = segment.prefix_length + segment.length
        if window is not None and window >= total:
            window = None
        shape = (segment.prefix_length, segment.length, window)
        if shape not in self._masks:
            plain = segment.prefix_length == 0 and window is None
            self._masks[shape] = (
                None if plain else causal_mask(segment.prefix_length, total, window, device)
            )
        return self._masks[shape]


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    layout: Layout,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The function registered with `transformers`; result (1, N, H, D)."""
    shares = getattr(module, "is_kv_shared_layer", False)
    options = LayerOptions(
        layer=int(module.layer_idx if not shares else module.kv_source_layer),  # type: ignore[arg-type]
        shares=bool(shares),
        scaling=scaling,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return layout.attention(query, key, value, options).transpose(1, 2), None


def register() -> None:
    """Make the attention known to `transformers`; harmless when repeated."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, attend)


def link_shared_layers(model: torch.nn.Module) -> None:
    """Tell layers that attend to another layer's keys and values whose these are (Gemma 4).

    The last layer of a kind that has its own stores them for all later layers of that kind.
    """
    owners: dict[str, int] = {}
    for module in model.modules():
        if not hasattr(module, "is_kv_shared_layer"):
            continue
        if module.is_kv_shared_layer:
            module.kv_source_layer = owners[module.layer_type]  # type: ignore[assignment,index]
        else:
            owners[module.layer_type] = int(module.layer_idx)  # type: ignore[arg-type,index]


def _by_start(
    segments: Sequence[Segment], parts: Sequence[torch.Tensor]
) -> dict[int, torch.Tensor]:
    return {segment.start: part for segment, part in zip(segments, parts, strict=True)}


def _beside(
    parts: dict[int, torch.Tensor], prefix: Sequence[int], starts: Sequence[int]
) -> torch.Tensor:
    """Segments of equal length as a batch (len(starts), heads, length, D), each after `prefix`."""
    own = [parts[start] for start in starts]
    before = [parts[start] for start in prefix]
    if not before:
        return own[0] if len(own) == 1 else torch.cat(own)
    if len(own) == 1:
        return torch.cat([*before, *own], dim=2)
    shared = before[0] if len(before) == 1 else torch.cat(before, dim=2)
    return torch.cat([shared.expand(len(own), -1, -1, -1), torch.cat(own)], dim=2)
