"""The embedded sampler: continuous batching, one prefill per group, log-probabilities kept.

`generate` may be called by any number of episodes at once. A driver task admits waiting requests
to free cache rows, computes what their prompts need, and then draws one token for every active
row per step; rows that end make room at once.

In deterministic mode a step is taken only when every episode in play waits for the sampler, and
requests are admitted in the order of their keys: then what is computed together, and so every
bit of it, does not depend on the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from training_gym.engines.local.attention import SlotLayout
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.draws import Draw, draw, stream_of, uniform
from training_gym.engines.local.network import Network
from training_gym.engines.local.slots import SlotTable
from training_gym.models.weights.adapters import replace_adapter
from training_gym.spec.errors import EngineError
from training_gym.spec.sampling import (
    Completion,
    Prompt,
    SampleKey,
    Sampling,
    StopReason,
    WeightUpdate,
)
from training_gym.spec.text import TextCodec


@dataclass(eq=False)
class Request:
    """One call of `generate` in flight; equal to itself only."""

    prompt: tuple[int, ...]
    sampling: Sampling
    key: SampleKey
    session: str | None
    adapter: str
    future: asyncio.Future[Completion]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    prefilled: int = 0
    row: int = -1
    stream: int = 0

    @property
    def order(self) -> tuple[str, int, str, int, int]:
        """Where the request stands in a deterministic queue."""
        key = self.key
        return key.stream, key.visit, key.task, key.member, key.turn


@dataclass
class SamplerStatistics:
    """What the sampler has computed since it was made."""

    prefilled_tokens: int = 0
    steps: int = 0
    busy_seconds: float = 0.0


class LocalSampler:
    """Implements `spec.sampling.Sampler` over a network in this process."""

    def __init__(
        self,
        network: Network,
        codec: TextCodec,
        compute: Compute,
        *,
        slots: int,
        max_sequence_tokens: int,
        prefill_tokens: int = 1024,
        deterministic: bool = True,
    ) -> None:
        """Serve `network`; the cache has `slots` rows and grows to `max_sequence_tokens`."""
        self._network = network
        self._codec = codec
        self._compute = compute
        self._table: SlotTable[Request] = SlotTable(slots, stateful=network.is_stateful)
        self._max_sequence_tokens = max_sequence_tokens
        self._prefill_tokens = prefill_tokens
        self._deterministic = deterministic
        self._waiting: list[Request] = []
        self._present: set[str] = set()
        self._wake = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None
        self.version = 0
        """Of the weights; adapters that were updated by name have their own."""
        self._versions: dict[str, int] = {}
        self.statistics = SamplerStatistics()
        self.on_shrunk: Callable[[int], None] = lambda slots: None
        """Hears that memory ran out and how many rows are left."""

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        *,
        session: str | None = None,
        adapter: str | None = None,
    ) -> Completion:
        """See `spec.sampling.Sampler`. Raises `EngineError` for what this engine cannot sample."""
        if prompt.media:
            raise EngineError(
                "the embedded engine samples text only, the prompt has media",
                fix="remove the images or choose an engine that takes them",
            )
        if not prompt.token_ids:
            raise EngineError("the prompt has no tokens", fix="give the task a prompt")
        if sampling.max_tokens is None:
            raise EngineError("max_tokens is open", fix="set sampling.max_tokens")
        if len(prompt.token_ids) >= self._max_sequence_tokens:
            return Completion(token_ids=(), logprobs=(), versions=(), stop_reason="context")
        request = Request(
            prompt.token_ids,
            sampling,
            key,
            session,
            self._network.route(adapter),
            asyncio.get_running_loop().create_future(),
            stream=stream_of(key),
        )
        self._waiting.append(request)
        self._notify()
        try:
            return await request.future
        finally:
            self._abandon(request)

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `spec.sampling.Sampler`."""
        return [await self._compute.run(self._network.score, ids) for ids in sequences]

    async def update_weights(self, update: WeightUpdate) -> None:
        """Weights have changed in place, or an adapter lies in the folder `update.source`.

        What was cached under the old ones is forgotten, except by the answers that are being drawn:
        they go on with what they have. Other adapters' rows stay warm.

        Raises:
            EngineError: the update names a source of whole weights, or no adapter of this model.
            ModelError: the folder's adapter cannot be used.
        """
        if update.adapter is None:
            if update.source != "memory":
                raise EngineError(
                    f"whole weights cannot be taken from {update.source!r} while sampling",
                    fix="load the model anew, or update an adapter",
                )
            await self._compute.run(self.take_up, update.version)
            return
        if update.source != "memory":
            await self._compute.run(
                replace_adapter, self._network.model, update.source, update.adapter
            )
        adapter = self._network.route(update.adapter)
        await self._compute.run(self._table.forget, adapter)
        self._versions[adapter] = update.version

    def take_up(self, version: int) -> None:
        """The weights in memory have become `version`. On the compute thread.

        Called where they change, no token is drawn from the new ones under the old number.
        """
        self._table.forget()
        self.version, self._versions = version, {}

    async def forget(self) -> None:
        """Drop what is warm, as if the process had just started.

        What is computed next then depends on the weights alone, not on what was sampled before: a
        run that goes on and one that is resumed here compute the same bits.
        """
        await self._compute.run(self._table.forget)

    async def end_session(self, session: str) -> None:
        """Nothing to do: warm rows are reused or overwritten as room is needed."""

    @contextlib.asynccontextmanager
    async def presence(self, session: str) -> AsyncIterator[None]:
        """Say that an episode is in play; in deterministic mode steps wait for its requests."""
        self._present.add(session)
        try:
            yield
        finally:
            self._present.discard(session)
            self._wake.set()

    async def close(self) -> None:
        """Stop the driver; requests in flight are cancelled."""
        if self._driver is not None:
            self._driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._driver

    def _notify(self) -> None:
        self._wake.set()
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())

    def _abandon(self, request: Request) -> None:
        """Free what a cancelled or failed request holds."""
        with contextlib.suppress(ValueError):  # the compute thread may have admitted it just now
            self._waiting.remove(request)
        if not request.future.done():
            request.future.cancel()
        self._wake.set()

    async def _drive(self) -> None:
        while self._waiting or self._table.num_active:
            await self._quiescence()
            self._admit_order()
            ended: list[tuple[Request, Completion]] = []
            try:
                ended = await self._compute.run(self._step)
            except torch.OutOfMemoryError as error:
                self._shrink(error)
            except Exception as error:  # noqa: BLE001 - boundary: the callers own the failure
                self._fail(error)
            for request, completion in ended:
                if not request.future.done():
                    request.future.set_result(completion)
            await asyncio.sleep(0)  # callers that were answered go on before the next step

    async def _quiescence(self) -> None:
        """In deterministic mode: wait until every episode in play waits for the sampler."""
        while self._deterministic:
            await asyncio.sleep(0)
            asking = [*self._waiting, *self._active()]
            blocked = {request.session for request in asking if not request.future.done()}
            if self._present <= blocked:
                return
            self._wake.clear()
            await self._wake.wait()

    def _active(self) -> list[Request]:
        slots = self._table.slots[: self._table.num_active]
        return [slot.owner for slot in slots if slot.owner is not None]

    def _admit_order(self) -> None:
        if self._deterministic:
            self._waiting.sort(key=lambda request: request.order)

    def _shrink(self, error: Exception) -> None:
        """Go on with half the rows: what was in one begins again, and draws the same numbers."""
        slots = len(self._table.slots)
        if slots == 1:
            self._fail(
                EngineError(
                    "the accelerator's memory does not hold one sequence: "
                    f"{str(error).partition(chr(10))[0]:.120}",
                    fix="lower max_response_tokens or max_prompt_tokens, or free memory",
                )
            )
            return
        for request in self._active():
            for drawn in (request.tokens, request.logprobs, request.versions):
                drawn.clear()
            self._waiting.append(request)
        self._table = SlotTable(slots // 2, stateful=self._network.is_stateful)
        torch.cuda.empty_cache()
        self.on_shrunk(slots // 2)

    def _fail(self, error: Exception) -> None:
        """Hand the error to everybody and begin anew: what the cache holds cannot be trusted."""
        for request in [*self._active(), *self._waiting]:
            if not request.future.done():
                request.future.set_exception(error)
        self._waiting.clear()
        self._table = SlotTable(len(self._table.slots), stateful=self._network.is_stateful)

    def _retire(self, request: Request) -> None:
        self._table.retire(request.row)
        for row, slot in enumerate(self._table.slots[: self._table.num_active]):
            if slot.owner is not None:
                slot.owner.row = row

    # Below: on the compute thread.

    @torch.inference_mode()
    def _step(self) -> list[tuple[Request, Completion]]:
        started = time.perf_counter()
        try:
            return self._drawn()
        finally:
            self.statistics.busy_seconds += time.perf_counter() - started

    def _drawn(self) -> list[tuple[Request, Completion]]:
        """One token more for each request; those that ended by it."""
        self._drop_abandoned()
        self._admit()
        requests = self._active()
        if not requests:
            return []
        logits = self._decode(requests)
        self.statistics.steps += 1
        tokens, logprobs = draw(logits, [self._wish(request) for request in requests])
        ended = []
        for request, token, logprob in zip(requests, tokens, logprobs, strict=True):
            request.tokens.append(token)
            request.logprobs.append(logprob)
            request.versions.append(self._versions.get(request.adapter, self.version))
            reason = self._stop_reason(request, token)
            if reason is not None:
                ended.append((request, _completion(request, reason)))
        for request, _ in ended:
            self._retire(request)
        return ended

    def _drop_abandoned(self) -> None:
        for request in self._active():
            if request.future.done():
                self._retire(request)

    def _admit(self) -> None:
        """Give rows to waiting requests and compute their prompts, shared parts once."""
        entering: list[Request] = []
        while self._waiting and self._table.num_active + len(entering) < len(self._table.slots):
            entering.append(self._waiting.pop(0))
        try:
            while entering:
                entering = self._enter(entering)
        except Exception:
            held = self._active()
            self._waiting[:0] = [request for request in entering if request not in held]
            raise

    def _enter(self, entering: Sequence[Request]) -> list[Request]:
        """Admit requests, except those that share what is about to be computed: these are left."""
        later: list[Request] = []
        now: list[Request] = []
        for request in entering:
            _, held = self._table.best_prefix(request.prompt, request.adapter)
            coming = (
                self._table.reusable(other.prompt[:-1], request.prompt)
                for other in now
                if other.adapter == request.adapter
            )
            if max(coming, default=0) > held:
                later.append(request)  # what it shares is about to be computed
                continue
            self._reserve(request)
            request.row, held = self._table.admit(request, request.prompt, request.adapter)
            request.prefilled = len(request.prompt) - held
            now.append(request)
        self._prefill(now)
        for request in now:
            self._table.mark(request.row)
        return later

    def _reserve(self, request: Request) -> None:
        assert request.sampling.max_tokens is not None
        longest = len(request.prompt) + request.sampling.max_tokens
        self._table.cache.reserve(min(longest, self._max_sequence_tokens))

    def _prefill(self, requests: Sequence[Request]) -> None:
        """Compute all but the last token of each prompt, packed, a bounded number at a time."""
        work: list[tuple[int, list[int]]] = []
        for request in requests:
            held = self._table.slots[request.row].tokens
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
            with self._appending(chosen) as inputs:
                self._network.hidden(*inputs)
            self.statistics.prefilled_tokens += size

    def _decode(self, requests: Sequence[Request]) -> torch.Tensor:
        """Logits (n, vocabulary) after each active row's last token."""
        last = [(request.tokens or request.prompt)[-1] for request in requests]
        with self._appending([(row, [token]) for row, token in enumerate(last)]) as inputs:
            return self._network.next_logits(*inputs)

    @contextlib.contextmanager
    def _appending(
        self, work: Sequence[tuple[int, list[int]]]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, SlotLayout]]:
        """What a pass that appends these tokens to these rows takes; recorded once it is done."""
        slots = [self._table.slots[row] for row, _ in work]
        starts = [len(slot.tokens) for slot in slots]
        device = self._network.device
        ids = [token for _, tokens in work for token in tokens]
        positions = [
            position
            for start, (_, tokens) in zip(starts, work, strict=True)
            for position in range(start, start + len(tokens))
        ]
        layout = SlotLayout(
            self._table.cache,
            rows=tuple(row for row, _ in work),
            lengths=tuple(len(tokens) for _, tokens in work),
            starts=tuple(starts),
            adapters=tuple(slot.adapter for slot in slots),
        )
        yield torch.tensor(ids, device=device), torch.tensor(positions, device=device), layout
        for slot, (_, tokens) in zip(slots, work, strict=True):
            slot.tokens.extend(tokens)

    def _wish(self, request: Request) -> Draw:
        position = len(request.tokens)
        early = position < request.sampling.min_tokens
        return Draw(
            request.sampling,
            uniform(request.stream, position),
            banned=tuple(self._codec.stop_ids) if early else (),
        )

    def _stop_reason(self, request: Request, token: int) -> StopReason | None:
        sampling = request.sampling
        if token in self._codec.stop_ids:
            return "stop"
        if sampling.stop and len(request.tokens) >= sampling.min_tokens:
            # A stop text cannot span more tokens than it has bytes.
            span = max(len(text.encode()) for text in sampling.stop)
            tail = self._codec.decode(request.tokens[-span - 4 :])
            if any(text in tail for text in sampling.stop):
                return "stop"
        if len(request.prompt) + len(request.tokens) >= self._max_sequence_tokens:
            return "context"
        if len(request.tokens) >= (sampling.max_tokens or 0):
            return "length"
        return None


def _completion(request: Request, reason: StopReason) -> Completion:
    return Completion(
        token_ids=tuple(request.tokens),
        logprobs=tuple(request.logprobs),
        versions=tuple(request.versions),
        stop_reason=reason,
        prefilled=request.prefilled,
    )
