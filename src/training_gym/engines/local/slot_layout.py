"""Where the tokens of a sampling pass belong: each segment appends to a row of the cache."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from training_gym.engines.local.cache import Places, SlotCache
from training_gym.engines.local.kernels import (
    LayerOptions,
    attend_rows,
    attend_segment,
    causal_mask,
    seen_keys,
)
from training_gym.engines.local.recurrent_states import SlotStates, States, Wave, make_waves
from training_gym.engines.local.shared_prefixes import (
    SharedPrefix,
    Sharing,
    attend_sharing,
    plan,
)


@dataclass
class SlotLayout:
    """Each segment appends to one cache row. One token a row takes the batched path."""

    cache: SlotCache
    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    """New tokens per row, in the order they are packed."""
    starts: tuple[int, ...]
    """Tokens each row already holds."""
    adapters: tuple[str, ...] = ()
    """The adapter of each row; none: that of the network."""
    prefixes: tuple[SharedPrefix, ...] = ()
    """What rows hold copies of; each row is in one of them at most."""
    _masks: dict[tuple[int, int | None], torch.Tensor | None] = field(default_factory=dict)
    _sharings: dict[tuple[int | None, int], Sharing | None] = field(default_factory=dict)
    _waves: tuple[Wave, ...] | None = None
    _places: Places | None = None

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """See `attention.Layout`."""
        if self.is_decode:
            queries, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))
            return self.decode(queries, keys, values, options).transpose(0, 1).unsqueeze(0)
        outputs = []
        offset = 0
        for index, (row, start, length) in enumerate(
            zip(self.rows, self.starts, self.lengths, strict=True)
        ):
            new = slice(offset, offset + length)
            offset += length
            if not options.shares:
                self.cache.write(options.layer, row, start, key[0, :, new], value[0, :, new])
            keys, values = self.cache.read(options.layer, row, start + length)
            mask = self._prefill_mask(index, options.window, query.device)
            outputs.append(attend_segment(query[:, :, new], keys, values, mask, options))
        return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]

    def waves(self, device: torch.device) -> Sequence[Wave]:
        """See `recurrence.RecurrentLayout`."""
        if self._waves is None:
            places = [sum(self.lengths[:index]) for index in range(len(self.lengths))]
            self._waves = make_waves(places, self.lengths, [0] * len(places), device)
        return self._waves

    def states(self, layer: int) -> States:
        """See `recurrence.RecurrentLayout`."""
        return SlotStates(self, layer)

    @functools.cached_property
    def is_decode(self) -> bool:
        """Whether rows 0…n-1 get exactly one token each."""
        return all(length == 1 for length in self.lengths) and self.rows == tuple(
            range(len(self.rows))
        )

    def decode(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """Attend with one token a row: query (n, H, D), key and value (n, K, D); (n, H, D)."""
        if not options.shares:
            self.cache.append(options.layer, self._step_places(key.device), key, value)
        longest = max(self.starts) + 1
        keys, values = self.cache.active(options.layer, len(self.rows), longest)
        sharing = self._sharing(keys, options.window)
        if sharing is not None:
            return attend_sharing(query, keys, values, sharing, options)
        seen = self._decode_mask(longest, options.window, query.device)
        return attend_rows(query, keys, values, seen, options)

    def _sharing(self, keys: torch.Tensor, window: int | None) -> Sharing | None:
        """How rows read in one product what they hold copies of; None: each reads its own."""
        if not self.prefixes or keys.device.type != "cpu":
            return None
        width = keys.shape[1] * keys.shape[3]
        if (window, width) not in self._sharings:
            self._sharings[window, width] = plan(self.prefixes, self.starts, window, width)
        return self._sharings[window, width]

    def _step_places(self, device: torch.device) -> Places:
        if self._places is None:
            rows = torch.arange(len(self.rows), device=device)
            self._places = Places(rows, torch.tensor(self.starts, device=device))
        return self._places

    def _prefill_mask(
        self, index: int, window: int | None, device: torch.device
    ) -> torch.Tensor | None:
        start, length = self.starts[index], self.lengths[index]
        if window is not None and window >= start + length:
            window = None
        if start == 0 and window is None:
            return None
        if (index, window) not in self._masks:
            self._masks[index, window] = causal_mask(start, start + length, window, device)
        return self._masks[index, window]

    def _decode_mask(
        self, longest: int, window: int | None, device: torch.device
    ) -> torch.Tensor | None:
        """Which of `longest` keys each row sees: (rows, 1, 1, longest); None: all of them."""
        if min(self.starts) + 1 == longest and (window is None or window >= longest):
            return None
        if (-1, window) not in self._masks:
            places = self._step_places(device)
            self._masks[-1, window] = seen_keys(places.positions, longest, window)
        return self._masks[-1, window]
