"""Requests in cache rows: prompts computed when they come in, one token a row at every step.

All of it runs on the compute thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from training_gym.engines.local.answers import Request
from training_gym.engines.local.network import Network
from training_gym.engines.local.shared_prefixes import SharedPrefix
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.engines.local.slots import SlotTable


class Rows:
    """The rows of the cache and the requests in them."""

    def __init__(
        self, network: Network, *, num_rows: int, max_sequence_tokens: int, prefill_tokens: int
    ) -> None:
        """All rows are empty; prompts are computed `prefill_tokens` at a time."""
        self._network = network
        self.table: SlotTable[Request] = self._made(num_rows)
        self.prefilled_tokens = 0
        """Since the rows were made."""
        self._max_sequence_tokens = max_sequence_tokens
        self._prefill_tokens = prefill_tokens

    def active(self) -> list[Request]:
        """Requests in rows 0…n-1, in order."""
        slots = self.table.slots[: self.table.num_active]
        return [slot.owner for slot in slots if slot.owner is not None]

    def renew(self, num_rows: int | None = None) -> None:
        """Empty all rows, because what the cache holds cannot be trusted; None: as many as now."""
        self._network.decoding.forget_recorded()
        self.table = self._made(num_rows or len(self.table.slots))

    def forget(self, adapter: str | None = None) -> None:
        """Nothing warm is valid any more; see `SlotTable.forget`."""
        self.table.forget(adapter, retain=self._network.retains)

    def give_back(self) -> None:
        """Give up what is warm, and its memory, unless a request is in a row."""
        if not self.table.num_active:
            self.table.forget()

    def _made(self, num_rows: int) -> SlotTable[Request]:
        return SlotTable(self._network.cache(num_rows), stateful=self._network.is_stateful)

    def retire(self, requests: Sequence[Request]) -> None:
        """The requests have ended; their rows stay warm.

        From the last row on: what moves into a row that is given up is then a request that goes on.
        """
        for row in sorted((request.row for request in requests), reverse=True):
            self.table.retire(row)
            moved = self.table.slots[row].owner
            if moved is not None:
                moved.row = row

    def drop_abandoned(self) -> None:
        """Retire requests whose callers are gone."""
        self.retire([request for request in self.active() if request.future.done()])

    def admit(self, waiting: list[Request]) -> None:
        """Give rows to waiting requests and compute their prompts, shared parts once.

        Those that found room are taken from `waiting`, the first ones first.
        """
        entering: list[Request] = []
        while waiting and self.table.num_active + len(entering) < len(self.table.slots):
            entering.append(waiting.pop(0))
        try:
            while entering:
                entering = self._enter(entering)
        except Exception:
            held = self.active()
            waiting[:0] = [request for request in entering if request not in held]
            raise

    def _enter(self, entering: Sequence[Request]) -> list[Request]:
        """Admit requests, except those that share what is about to be computed: these are left."""
        later: list[Request] = []
        now: list[Request] = []
        for request in entering:
            _, held = self.table.best_prefix(request.prompt, request.adapter)
            if held < len(request.prompt) - 1 and self._coming(request, now) > held:
                later.append(request)  # what it shares is about to be computed
                continue
            self._reserve(request)
            request.row, held = self.table.admit(request, request.prompt, request.adapter)
            request.prefilled = len(request.prompt) - held
            now.append(request)
        self._prefill(now)
        for request in now:
            self.table.mark(request.row)
        return later

    def _coming(self, request: Request, others: Sequence[Request]) -> int:
        """How much of the request's prompt will be held once the others' prompts are computed."""
        shared = (
            self.table.reusable(other.prompt[:-1], request.prompt)
            for other in others
            if other.adapter == request.adapter
        )
        return max(shared, default=0)

    def _reserve(self, request: Request) -> None:
        assert request.sampling.max_tokens is not None
        longest = len(request.prompt) + request.sampling.max_tokens
        self.table.cache.reserve(min(longest, self._max_sequence_tokens))

    def _prefill(self, requests: Sequence[Request]) -> None:
        """Compute all but the last token of each prompt, packed, a bounded number at a time."""
        work: list[tuple[int, list[int]]] = []
        for request in requests:
            held = self.table.slots[request.row].tokens
            missing = list(request.prompt[len(held) : -1])
            for start in range(0, len(missing), self._prefill_tokens):
                work.append((request.row, missing[start : start + self._prefill_tokens]))
        while work:
            chosen: list[tuple[int, list[int]]] = []
            size = 0
            for row, tokens in list(work):
                taken = any(row == other for other, _ in chosen)
                if taken or (chosen and size + len(tokens) > self._prefill_tokens):
                    continue
                chosen.append((row, tokens))
                work.remove((row, tokens))
                size += len(tokens)
            with self._appending(chosen) as (ids, positions, layout):
                device = self._network.device
                self._network.hidden(ids.to(device), positions.to(device), layout)
            self.prefilled_tokens += size

    def next_logits(self) -> torch.Tensor:
        """Logits (n, vocabulary) after each active request's last token."""
        last = [request.last_token for request in self.active()]
        work = [(row, [token]) for row, token in enumerate(last)]
        with self._appending(work, self.table.shared_prefixes()) as inputs:
            return self._network.next_logits(*inputs)

    @contextlib.contextmanager
    def _appending(
        self, work: Sequence[tuple[int, list[int]]], prefixes: tuple[SharedPrefix, ...] = ()
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, SlotLayout]]:
        """What a pass that appends these tokens to these rows takes, on the CPU.

        It is recorded once the pass is done.
        """
        slots = [self.table.slots[row] for row, _ in work]
        starts = [len(slot.tokens) for slot in slots]
        ids = [token for _, tokens in work for token in tokens]
        positions = [
            position
            for start, (_, tokens) in zip(starts, work, strict=True)
            for position in range(start, start + len(tokens))
        ]
        layout = SlotLayout(
            self.table.cache,
            rows=tuple(row for row, _ in work),
            lengths=tuple(len(tokens) for _, tokens in work),
            starts=tuple(starts),
            adapters=tuple(slot.adapter for slot in slots),
            prefixes=prefixes,
        )
        yield torch.tensor(ids), torch.tensor(positions), layout
        for slot, (_, tokens) in zip(slots, work, strict=True):
            slot.tokens.extend(tokens)
