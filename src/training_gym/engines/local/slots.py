"""Which sequence lies in which cache row, and what a new request can reuse.

A request begins with the longest run of tokens that some row already holds: its own session's
earlier turns, the prompt its group shares, a system prompt everybody has. What is left is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from training_gym.engines.local.cache import SlotCache

R = TypeVar("R")


@dataclass
class Slot(Generic[R]):
    """One cache row: the tokens whose keys and values it holds, and who is using it."""

    tokens: list[int] = field(default_factory=list)
    owner: R | None = None
    last_used: int = 0


class SlotTable(Generic[R]):
    """Rows 0…num_active-1 belong to requests; the rest are warm or empty."""

    def __init__(self, num_rows: int) -> None:
        """All rows are empty."""
        self.cache = SlotCache(num_rows)
        self.slots: list[Slot[R]] = [Slot() for _ in range(num_rows)]
        self.num_active = 0
        self._clock = 0

    def best_prefix(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Row that shares the longest prefix with `tokens`, and its length; (-1, 0) for none."""
        best, length = -1, 0
        for row, slot in enumerate(self.slots):
            shared = common_prefix(slot.tokens, tokens)
            if shared > length:
                best, length = row, shared
        return best, length

    def admit(self, owner: R, tokens: Sequence[int]) -> tuple[int, int]:
        """Give `owner` a row that holds as much of `tokens` as any does; (row, tokens held).

        At least the last token is left to compute: its hidden state predicts the next one.
        """
        source, shared = self.best_prefix(tokens)
        shared = min(shared, len(tokens) - 1)
        row = self.num_active
        if source >= self.num_active and shared == min(
            len(self.slots[source].tokens), len(tokens) - 1
        ):
            self._swap(source, row)  # a warm row that is all prefix: taken, not copied
        else:
            source = self._make_room(row, source)
            if shared:
                self.cache.copy(source, row, shared)
        slot = self.slots[row]
        slot.tokens = list(tokens[:shared])
        slot.owner = owner
        self.num_active += 1
        self._touch(row)
        return row, shared

    def retire(self, row: int) -> None:
        """The row's request has ended; what it holds stays warm."""
        self.slots[row].owner = None
        self._touch(row)
        self.num_active -= 1
        self._swap(row, self.num_active)

    def forget(self) -> None:
        """Nothing warm is valid any more; with no request in a row, all is as when it was made."""
        if self.num_active == 0:
            self.slots = [Slot() for _ in self.slots]
            self._clock = 0
            self.cache.release()
            return
        for slot in self.slots[self.num_active :]:
            slot.tokens = []

    def _make_room(self, row: int, source: int) -> int:
        """Put the least useful warm row at `row`; where `source` went to."""
        warm = range(self.num_active, len(self.slots))
        victim = min(
            (other for other in warm if other != source or len(warm) == 1),
            key=lambda other: (bool(self.slots[other].tokens), self.slots[other].last_used),
        )
        if victim == row:
            return source
        self._swap(victim, row)
        if source == row:
            return victim
        return source

    def _swap(self, one: int, other: int) -> None:
        if one == other:
            return
        if self.slots[one].tokens or self.slots[other].tokens:
            length = max(len(self.slots[one].tokens), len(self.slots[other].tokens)) + 1
            self.cache.swap(one, other, length)
        self.slots[one], self.slots[other] = self.slots[other], self.slots[one]

    def _touch(self, row: int) -> None:
        self._clock += 1
        self.slots[row].last_used = self._clock


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(one), len(other))
    if not high or one[0] != other[0]:
        return 0  # by far the most frequent case where many requests are compared
    if list(one[:high]) == list(other[:high]):
        return high
    while low < high:  # invariant: one[:low] == other[:low], one[:high + 1] != other[:high + 1]
        middle = (low + high + 1) // 2
        if list(one[low:middle]) == list(other[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low
