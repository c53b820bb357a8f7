"""The key/value cache: one row a sequence, the busy rows first.

Rows 0…active-1 are being decoded, so that a step works on plain slices and computes no holes.
Behind them lie rows that are warm: sequences that ended or wait for their next turn. Their keys
and values serve any later request that begins with the same tokens, until the row is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class SlotCache:
    """Keys and values of every layer, (rows, key heads, capacity, head dim) each.

    Layers are allocated when they are first written, with the shapes the model hands over; the
    capacity grows in steps as sequences do.
    """

    GROWTH_TOKENS = 64

    def __init__(self, num_rows: int) -> None:
        """Room for `num_rows` sequences; memory is taken as it is used."""
        self.num_rows = num_rows
        self.capacity = 0
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}

    def reserve(self, num_tokens: int) -> None:
        """Make sure that every row can hold `num_tokens`."""
        if num_tokens <= self.capacity:
            return
        steps = -(-num_tokens // self.GROWTH_TOKENS)
        self.capacity = steps * self.GROWTH_TOKENS
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

    def append(
        self, layer: int, starts: Sequence[int], key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Store one position in each of rows 0…n-1; key and value (n, key heads, head dim)."""
        self._allocate(layer, key.transpose(0, 1), value.transpose(0, 1))
        num_rows = len(starts)
        rows = torch.arange(num_rows, device=key.device)
        positions = torch.tensor(starts, device=key.device)
        self._keys[layer][rows, :, positions] = key
        self._values[layer][rows, :, positions] = value

    def read(self, layer: int, row: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first `length` positions of one row, (1, key heads, length, head dim) each."""
        part = slice(row, row + 1)
        return self._keys[layer][part, :, :length], self._values[layer][part, :, :length]

    def active(self, layer: int, num_rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows 0…num_rows-1, the first `length` positions."""
        return self._keys[layer][:num_rows, :, :length], self._values[layer][:num_rows, :, :length]

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of `target` those of `source`."""
        for store in (self._keys, self._values):
            for tensor in store.values():
                tensor[target, :, :length] = tensor[source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for store in (self._keys, self._values):
            for tensor in store.values():
                kept = tensor[one, :, :length].clone()
                tensor[one, :, :length] = tensor[other, :, :length]
                tensor[other, :, :length] = kept

    @property
    def num_bytes(self) -> int:
        """Memory taken."""
        stores = (self._keys, self._values)
        return sum(tensor.numel() * tensor.element_size() for s in stores for tensor in s.values())

    def release(self) -> None:
        """Give all memory back; what was cached is gone."""
        self._keys.clear()
        self._values.clear()
        self.capacity = 0

    def _allocate(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        if layer in self._keys:
            return
        for store, like in ((self._keys, key), (self._values, value)):
            store[layer] = like.new_zeros(
                self.num_rows, like.shape[0], self.capacity, like.shape[-1]
            )
