"""Which sequence lies in which cache row, and what a new request can reuse.

A request begins with the longest run of tokens that some row already holds: its own session's
earlier turns, the prompt its group shares, a system prompt everybody has. What is left is computed.
A model with linear attention keeps states instead of keys and values: of a row it can reuse all
that it holds or its prompt, nothing in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.shared_prefixes import SharedPrefix

R = TypeVar("R")


@dataclass(eq=False)
class Common:
    """The first tokens of several rows, whose keys and values are copies of one row's.

    They stay what they are while their rows are in use, whatever becomes of the weights.
    """

    length: int


@dataclass
class Slot(Generic[R]):
    """One cache row: the tokens whose keys and values it holds, and who is using it."""

    tokens: list[int] = field(default_factory=list)
    owner: R | None = None
    last_used: int = 0
    mark: int = 0
    """Tokens behind which the row's states were kept; 0: nowhere."""
    adapter: str = ""
    """What the tokens went through: rows serve requests for the same adapter only."""
    outdated: bool = False
    """The weights have changed since its tokens were computed: it serves its request to the end,
    and nothing else begins with it."""
    common: Common | None = None
    """What it shares with other rows."""


class SlotTable(Generic[R]):
    """Rows 0…num_active-1 belong to requests; the rest are warm or empty."""

    def __init__(self, cache: SlotCache, *, stateful: bool = False) -> None:
        """All rows of `cache` are empty; `stateful` where some layers carry states."""
        self.cache = cache
        self.stateful = stateful
        self.slots: list[Slot[R]] = [Slot() for _ in range(cache.num_rows)]
        self.num_active = 0
        self._clock = 0

    def best_prefix(self, tokens: Sequence[int], adapter: str = "") -> tuple[int, int]:
        """Row that serves the longest beginning of `tokens`, and its length; (-1, 0) for none."""
        best, length = -1, 0
        for row, slot in enumerate(self.slots):
            held = slot.tokens
            # Of a hundred rows nearly all are passed by here, for each of a hundred requests.
            if len(held) <= length or held[0] != tokens[0]:
                continue
            if slot.adapter != adapter or slot.outdated:
                continue
            reusable = self.reusable(held, tokens, slot.mark)
            if reusable > length:
                best, length = row, reusable
                if length == len(tokens) - 1:
                    break  # a group's other members hold no more
        return best, length

    def reusable(self, held: Sequence[int], tokens: Sequence[int], mark: int = 0) -> int:
        """How much of `tokens` a row that holds `held` spares computing.

        The last token is always left: its hidden state predicts the next one.
        """
        shared = min(common_prefix(held, tokens), len(tokens) - 1)
        if not self.stateful:
            return shared
        return max((end for end in (len(held), mark) if end <= shared), default=0)

    def admit(self, owner: R, tokens: Sequence[int], adapter: str = "") -> tuple[int, int]:
        """Give `owner` a row that holds as much of `tokens` as any does; (row, tokens held)."""
        source, shared = self.best_prefix(tokens, adapter)
        row = self.num_active
        whole = source >= 0 and shared == min(len(self.slots[source].tokens), len(tokens) - 1)
        if source >= row and whole and not self._is_marked(source, shared):
            self._swap(source, row)  # a warm row that is all prefix: taken, not copied
            source = row
        else:
            source = self._make_room(row, source)
            if shared:
                self.cache.copy(source, row, shared, marked=self._is_marked(source, shared))
            self.slots[row].mark = 0
        slot = self.slots[row]
        slot.common = self._common_with(source, row, shared)
        slot.tokens = list(tokens[:shared])
        slot.owner = owner
        slot.adapter = adapter
        slot.outdated = False
        self.num_active += 1
        self._touch(row)
        return row, shared

    def shared_prefixes(self) -> tuple[SharedPrefix, ...]:
        """What requests hold copies of."""
        rows: dict[Common, list[int]] = {}
        for row, slot in enumerate(self.slots[: self.num_active]):
            if slot.common is not None:
                rows.setdefault(slot.common, []).append(row)
        return tuple(
            SharedPrefix(tuple(found), common.length)
            for common, found in rows.items()
            if len(found) > 1
        )

    def mark(self, row: int) -> None:
        """The row holds its prompt: others with this prompt can begin here."""
        if self.stateful:
            self.slots[row].mark = len(self.slots[row].tokens)
            self.cache.mark(row)

    def _is_marked(self, row: int, shared: int) -> bool:
        """Whether `shared` tokens of a row are reused from its marked states."""
        return self.stateful and shared != len(self.slots[row].tokens)

    def retire(self, row: int) -> None:
        """The row's request has ended; what it holds stays warm, unless it is outdated."""
        slot = self.slots[row]
        slot.owner = None
        if slot.outdated:
            slot.tokens, slot.mark = [], 0
        self._touch(row)
        self.num_active -= 1
        self._swap(row, self.num_active)

    def forget(self, adapter: str | None = None, *, retain: bool = False) -> None:
        """Nothing warm is valid any more; with no request in a row, all is as when it was made.

        Rows of requests go on with what they hold, as outdated ones. With `adapter`: of its rows
        only. With `retain` the cache keeps its memory.
        """
        if self.num_active == 0 and adapter is None:
            self.slots = [Slot() for _ in self.slots]
            self._clock = 0
            if retain:
                self.cache.clear()
            else:
                self.cache.release()
            return
        for row, slot in enumerate(self.slots):
            if adapter not in (None, slot.adapter):
                continue
            if row < self.num_active:
                slot.outdated = True
            else:
                slot.tokens, slot.mark = [], 0

    def _common_with(self, source: int, row: int, shared: int) -> Common | None:
        """What `row`, which holds `shared` tokens of `source`, has in common with others from now.

        A row has one such beginning: that by which most tokens are read once instead of often.
        """
        if not shared:
            return None
        held = self.slots[source].common
        if source == row:
            return held if held is not None and held.length <= shared else None
        if held is not None:
            users = sum(slot.common is held for slot in self.slots[: self.num_active])
            users += source >= self.num_active
            joined = users * min(held.length, shared) - (users - 1) * held.length
            apart = shared - (held.length if users > 1 else 0)
            if joined >= max(apart, 1):
                held.length = min(held.length, shared)
                return held
            if apart <= 0:
                return None
        self.slots[source].common = made = Common(shared)
        return made

    def _make_room(self, row: int, source: int) -> int:
        """Put the least useful warm row at `row`; where `source` went to."""
        if row != source and not self.slots[row].tokens:
            return source  # an empty row is as good as any, and needs no search
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
