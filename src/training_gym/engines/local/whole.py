"""The slow path: every sequence computed whole, by the model's own forward, nothing shared.

For models whose layers do not take a layout: other recurrent layers than those known here,
attention that is not taken from the registry. A shared prompt is computed for each answer, and a
step of sampling computes all the tokens of its rows. The cache then holds token ids instead of keys
and values, so that rows are shared, moved and forgotten as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from training_gym.engines.local.attention import Layout, PackedLayout
from training_gym.engines.local.slot_layout import SlotLayout

_IDS = -1
"""The cache's layer for token ids."""

OwnForward = Callable[[torch.Tensor], torch.Tensor]
"""Token ids (T,) of one sequence to its hidden states (T, hidden)."""


def hidden_whole(own: OwnForward, ids: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Hidden states (N, hidden) of packed ids (N,), computed one sequence after another."""
    if isinstance(layout, PackedLayout):
        sequences = _packed(ids, layout)
    elif isinstance(layout, SlotLayout):
        sequences = _rows(ids, layout)
    else:
        raise TypeError(f"a {type(layout).__name__} does not say which tokens form a sequence")
    return torch.cat([own(sequence)[-new:] for sequence, new in sequences])


def _packed(ids: torch.Tensor, layout: PackedLayout) -> Iterator[tuple[torch.Tensor, int]]:
    """Each segment behind its prefixes, and its length."""
    spans = {s.start: slice(s.start, s.start + s.length) for s in layout.segments}
    for segment in layout.segments:
        starts = [*segment.prefix, segment.start]
        yield torch.cat([ids[spans[start]] for start in starts]), segment.length


def _rows(ids: torch.Tensor, layout: SlotLayout) -> Iterator[tuple[torch.Tensor, int]]:
    """What each row holds with the new tokens appended, and how many these are."""
    parts = torch.split(ids, list(layout.lengths))
    for row, start, new in zip(layout.rows, layout.starts, parts, strict=True):
        kept = new.view(1, -1, 1)
        layout.cache.write(_IDS, row, start, kept, kept)
        held, _ = layout.cache.read(_IDS, row, start + len(new))
        yield held.flatten(), len(new)
