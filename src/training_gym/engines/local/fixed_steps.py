"""Decoding steps whose buffers stay where they are, of few shapes: what can be recorded.

Ids, positions and rows of a step are written into buffers on the device, the number of rows and
the length of what they attend to are rounded up, and the logits land in a buffer, too. What is
computed for rows that are not there goes nowhere: their keys and values go to the cache's scratch
row, because behind the active rows lie warm ones, and their logits are not looked at. They attend
to the first position of whichever row lies there, so that they are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from training_gym.engines.local.cache import Places, SlotCache
from training_gym.engines.local.decoding import Decoder
from training_gym.engines.local.graphs import Graphs, Recorder
from training_gym.engines.local.kernels import LayerOptions, attend_rows, seen_keys


class StepShape(NamedTuple):
    """Of one kind of step."""

    rows: int
    length: int
    """Of keys and values that are read."""


class FixedLayout:
    """Implements `DecodeLayout`: what belongs where is told by tensors, not by numbers."""

    def __init__(self, cache: SlotCache, places: Places, length: int) -> None:
        """One token at `places`, attending to `length` positions at most."""
        self._cache = cache
        self._places = places
        self._length = length
        self._biases: dict[int | None, torch.Tensor] = {}

    def decode(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """See `DecodeLayout`."""
        self._cache.append(options.layer, self._places, key, value)
        keys, values = self._cache.active(options.layer, len(query), self._length)
        return attend_rows(query, keys, values, self._bias(options.window, query.dtype), options)

    def _bias(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """What is added to the scores: 0, or minus infinity where a key is not seen.

        Kernels want it so, and would make it of the truth values anew in every layer.
        """
        if window not in self._biases:
            seen = seen_keys(self._places.positions, self._length, window)
            blank = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
            self._biases[window] = blank.masked_fill_(~seen, float("-inf"))
        return self._biases[window]


class FixedSteps:
    """Runs a decoder's steps over fixed buffers, recorded where they come again."""

    def __init__(self, decoder: Decoder, vocab_size: int, recorder: Recorder) -> None:
        """Of `decoder`, whose logits have `vocab_size` columns."""
        self.graphs = Graphs(recorder)
        self._decoder = decoder
        self._vocab_size = vocab_size
        self._over: tuple[SlotCache, int, int] | None = None
        self._inputs = torch.empty(0)
        self._logits = torch.empty(0)

    def logits(
        self, ids: torch.Tensor, starts: Sequence[int], cache: SlotCache, device: torch.device
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after token `ids[i]` at position `starts[i]` of row i.

        They are overwritten by the next step. `cache` has a scratch row. Raises what `Graphs.run`
        raises; the step can then be made in another way.
        """
        num_rows = len(starts)
        shape = StepShape(
            padded_rows(num_rows, cache.num_rows),
            padded_length(max(starts) + 1, cache.capacity),
        )
        self._decoder.prepare()
        if self._over != (cache, cache.allocations, self._decoder.layouts):
            self.graphs.drop()
            self._make_buffers(cache, device)
        self._fill(ids, starts, cache, shape.rows)
        try:
            self.graphs.run(shape, lambda: self._step(shape, cache))
        finally:
            self._over = (cache, cache.allocations, self._decoder.layouts)
        return self._logits[:num_rows]

    def release(self) -> None:
        """Forget what is recorded, the buffers and the cache they belong to."""
        self.graphs.drop()
        self._over = None
        self._inputs = self._logits = torch.empty(0)

    def _make_buffers(self, cache: SlotCache, device: torch.device) -> None:
        if self._logits.shape[0] == cache.num_rows:
            return
        with torch.inference_mode(False):
            self._inputs = torch.empty(3, cache.num_rows, dtype=torch.int64, device=device)
            self._logits = torch.empty(
                cache.num_rows, self._vocab_size, dtype=torch.float32, device=device
            )

    def _fill(
        self, ids: torch.Tensor, starts: Sequence[int], cache: SlotCache, num_rows: int
    ) -> None:
        """Write ids, positions and rows, in one copy to the device."""
        used, blank = len(starts), num_rows - len(starts)
        given = torch.zeros(3, num_rows, dtype=torch.int64)
        given[0, :used] = ids
        given[1] = torch.tensor([*starts, *[0] * blank])
        given[2] = torch.tensor([*range(used), *[cache.num_rows] * blank])
        self._inputs[:, :num_rows] = given.to(self._inputs.device)

    def _step(self, shape: StepShape, cache: SlotCache) -> None:
        """What is recorded: it reads and writes buffers only."""
        ids, positions, rows = self._inputs[:, : shape.rows]
        layout = FixedLayout(cache, Places(rows, positions), shape.length)
        self._logits[: shape.rows] = self._decoder.compute(ids, positions, layout)


def padded_rows(count: int, most: int) -> int:
    """How many rows are computed where `count` are wanted: a power of two, or a multiple of 8.

    Beyond 64 a multiple of an eighth of the power of two above, so a quarter is wasted at most.
    """
    above = 1 << (count - 1).bit_length()
    step = above if count <= 8 else max(8, above // 8)
    return min(-(-count // step) * step, most)


def padded_length(count: int, most: int) -> int:
    """How many keys are read where `count` are wanted: a multiple of 64.

    Beyond 1024 a multiple of a sixteenth of the power of two above: all rows read so many, so no
    more than an eighth is wasted.
    """
    step = max(64, (1 << (count - 1).bit_length()) // 16)
    return min(-(-count // step) * step, most)
