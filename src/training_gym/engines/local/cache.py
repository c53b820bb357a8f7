"""The key/value cache: one row a sequence, the busy rows first.

Rows 0…active-1 are being decoded, so that a step works on plain slices and computes no holes.
Behind them lie rows that are warm: sequences that ended or wait for their next turn. Their keys
and values serve any later request that begins with the same tokens, until the row is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from training_gym.engines.local.recurrent_states import State
from training_gym.planning.memory import cached_tokens


class Places(NamedTuple):
    """Where a step's keys and values go: made once for all layers."""

    rows: torch.Tensor
    """(n,)"""
    positions: torch.Tensor
    """(n,)"""


class SlotCache:
    """Keys and values of every layer, (rows, key heads, capacity, head dim) each.

    Layers are allocated when they are first written, with the shapes the model hands over; the
    capacity grows in steps as sequences do. Layers of linear attention have a state per row
    instead, and a marked one: that behind the row's prompt, which other rows can start from.
    """

    def __init__(
        self, num_rows: int, *, dtype: torch.dtype | None = None, scratch: bool = False
    ) -> None:
        """Room for `num_rows` sequences; memory is taken as it is used.

        Keys and values are kept in `dtype`; None: as they are handed over. With `scratch` there is
        one row more, number `num_rows`, for what is computed and not wanted.
        """
        self.num_rows = num_rows
        self.capacity = 0
        self.allocations = 0
        """Rises whenever keys or values come to lie elsewhere."""
        self.dtype = dtype
        self._allocated_rows = num_rows + scratch
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}
        self._states: dict[int, State] = {}
        self._marked: dict[int, State] = {}

    def reserve(self, num_tokens: int) -> None:
        """Make sure that every row can hold `num_tokens`."""
        if num_tokens <= self.capacity:
            return
        self.capacity = cached_tokens(num_tokens)
        self.allocations += 1
        for store in (self._keys, self._values):
            for layer, old in store.items():
                grown = old.new_zeros(old.shape[0], old.shape[1], self.capacity, old.shape[3])
                grown[:, :, : old.shape[2]] = old
                store[layer] = grown

    def write(
        self, layer: int, row: int, start: int, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Store (key heads, n, head dim) at positions start…start+n-1 of one row."""
        self._allocate(layer, key, value)
        end = start + key.shape[1]
        self._keys[layer][row, :, start:end] = key
        self._values[layer][row, :, start:end] = value

    def append(self, layer: int, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store one position in each of n rows; key and value (n, key heads, head dim)."""
        self._allocate(layer, key.transpose(0, 1), value.transpose(0, 1))
        rows, positions = places
        for kept, new in ((self._keys[layer], key), (self._values[layer], value)):
            kept[rows, :, positions] = new.to(kept.dtype)

    def read(self, layer: int, row: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first `length` positions of one row, (1, key heads, length, head dim) each."""
        part = slice(row, row + 1)
        return self._keys[layer][part, :, :length], self._values[layer][part, :, :length]

    def active(self, layer: int, num_rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows 0…num_rows-1, the first `length` positions."""
        return self._keys[layer][:num_rows, :, :length], self._values[layer][:num_rows, :, :length]

    def states(self, layer: int, rows: Sequence[int], starts: Sequence[int]) -> State:
        """What the rows carry in one layer; zeros where a row holds no token yet."""
        kept = self._states[layer]
        chosen = _chosen(rows, kept.tail.device)
        tail, matrix = kept.tail[chosen], kept.matrix[chosen]
        if min(starts) > 0:
            return State(tail, matrix)
        begun = torch.tensor([start > 0 for start in starts], device=tail.device)
        return State(
            torch.where(begun.view(-1, 1, 1), tail, 0.0),
            torch.where(begun.view(-1, 1, 1, 1), matrix, 0.0),
        )

    def keep_states(self, layer: int, rows: Sequence[int], state: State) -> None:
        """Store what the rows carry in one layer from now on."""
        if layer not in self._states:
            for store in (self._states, self._marked):
                store[layer] = State(*(t.new_zeros(self.num_rows, *t.shape[1:]) for t in state))
        chosen = _chosen(rows, state.tail.device)
        for kept, new in zip(self._states[layer], state, strict=True):
            kept[chosen] = new

    def mark(self, row: int) -> None:
        """Keep the row's states as they are now, beside those that go on."""
        for layer, state in self._states.items():
            for kept, now in zip(self._marked[layer], state, strict=True):
                kept[row] = now[row]

    def copy(self, source: int, target: int, length: int, *, marked: bool = False) -> None:
        """Make the first `length` positions of `target` those of `source`.

        States are those at the end of `source`, or the marked ones.
        """
        for store in (self._keys, self._values):
            for tensor in store.values():
                tensor[target, :, :length] = tensor[source, :, :length]
        for layer, state in (self._marked if marked else self._states).items():
            for kept, found in zip(self._states[layer], state, strict=True):
                kept[target] = found[source]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for store in (self._keys, self._values):
            for tensor in store.values():
                kept = tensor[one, :, :length].clone()
                tensor[one, :, :length] = tensor[other, :, :length]
                tensor[other, :, :length] = kept
        both = torch.tensor([one, other])
        for states in (self._states, self._marked):
            for state in states.values():
                for tensor in state:
                    rows = both.to(tensor.device)
                    tensor[rows] = tensor[rows.flip(0)]

    @torch.inference_mode()
    def clear(self) -> None:
        """Make all that is kept zero, where it lies."""
        for tensor in self._tensors():
            tensor.zero_()

    @property
    def num_bytes(self) -> int:
        """Memory taken."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def release(self) -> None:
        """Give all memory back; what was cached is gone."""
        self._keys.clear()
        self._values.clear()
        self._states.clear()
        self._marked.clear()
        self.capacity = 0
        self.allocations += 1

    def _tensors(self) -> list[torch.Tensor]:
        tensors = [*self._keys.values(), *self._values.values()]
        for state in (*self._states.values(), *self._marked.values()):
            tensors += state
        return tensors

    def _allocate(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        if layer in self._keys:
            return
        self.allocations += 1
        for store, like in ((self._keys, key), (self._values, value)):
            store[layer] = like.new_zeros(
                self._allocated_rows,
                like.shape[0],
                self.capacity,
                like.shape[-1],
                dtype=self.dtype if like.is_floating_point() else None,
            )


def _chosen(rows: Sequence[int], device: torch.device) -> slice | torch.Tensor:
    """Index of the rows; a slice, which copies nothing, where they are the first ones."""
    if tuple(rows) == tuple(range(len(rows))):
        return slice(0, len(rows))
    return torch.tensor(rows, device=device)
