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
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import torch

from training_gym.engines.local.answers import Request, wishes_of
from training_gym.engines.local.attendance import Attendance
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.drawing import SamplerStatistics, require_sampleable
from training_gym.engines.local.draws import draw, stream_of
from training_gym.engines.local.grammars import Grammars
from training_gym.engines.local.network import Network
from training_gym.engines.local.rows import Rows
from training_gym.models.weights.adapters import replace_adapter
from training_gym.spec.errors import EngineError
from training_gym.spec.sampling import Completion, Prompt, SampleKey, Sampling, WeightUpdate
from training_gym.spec.text import TextCodec

STEPS_AT_ONCE = 8
"""Tokens of each answer that are drawn before callers are looked at, unless an answer is done.
In deterministic mode it is one: who is in play is looked at before every step."""

Ended = tuple[Request, Completion | EngineError]
"""A request that got its answer, or why it gets none."""


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
        attendance: Attendance | None = None,
    ) -> None:
        """Serve `network`; the cache has `slots` rows and grows to `max_sequence_tokens`.

        `attendance` is shared by samplers that serve the same episodes; None: there is no other.
        """
        self._network = network
        self._codec = codec
        self._compute = compute
        self._grammars = Grammars(codec)
        self._rows = Rows(
            network,
            num_rows=slots,
            max_sequence_tokens=max_sequence_tokens,
            prefill_tokens=prefill_tokens,
        )
        self._max_sequence_tokens = max_sequence_tokens
        self._deterministic = deterministic
        self._waiting: list[Request] = []
        self.attendance = attendance or Attendance()
        self.attendance.join(self)
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
        """See `spec.sampling.Sampler`.

        Raises `EngineError` for what this engine cannot sample, `FormError` for what it cannot hold
        an answer to.
        """
        require_sampleable(prompt, sampling)
        matcher = None
        if sampling.form is not None:
            matcher = await self._compute.run(self._grammars.matcher, sampling)
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
            matcher=matcher,
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
        await self._compute.run(self._rows.forget, adapter)
        self._versions[adapter] = update.version

    def take_up(self, version: int) -> None:
        """The weights in memory have become `version`. On the compute thread.

        Called where they change, no token is drawn from the new ones under the old number.
        """
        self._rows.forget()
        self.version, self._versions = version, {}

    async def forget(self) -> None:
        """Drop what is warm, as if the process had just started.

        What is computed next then depends on the weights alone, not on what was sampled before: a
        run that goes on and one that is resumed here compute the same bits. Samplers that serve the
        same episodes forget as well.
        """
        await self.attendance.forget()

    async def forget_own(self) -> None:
        """See `Attended`."""
        await self._compute.run(self._rows.forget)

    def give_back(self) -> None:
        """See `Rows.give_back`. On the compute thread."""
        self._rows.give_back()

    async def end_session(self, session: str) -> None:
        """Nothing to do: warm rows are reused or overwritten as room is needed."""

    def presence(self, session: str) -> AbstractAsyncContextManager[None]:
        """Say that an episode is in play; in deterministic mode steps wait for its requests."""
        return self.attendance.presence(session)

    def waiting_sessions(self) -> list[str | None]:
        """See `Attended`."""
        asking = [*self._waiting, *self._rows.active()]
        return [request.session for request in asking if not request.future.done()]

    async def close(self) -> None:
        """Stop the driver; requests in flight are cancelled."""
        self.attendance.leave(self)
        if self._driver is not None:
            self._driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._driver

    def _notify(self) -> None:
        self.attendance.changed()
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())

    def _abandon(self, request: Request) -> None:
        """Free what a cancelled or failed request holds."""
        with contextlib.suppress(ValueError):  # the compute thread may have admitted it just now
            self._waiting.remove(request)
        if not request.future.done():
            request.future.cancel()
        self.attendance.changed()

    async def _drive(self) -> None:
        while self._waiting or self._rows.table.num_active:
            if self._deterministic:
                await self.attendance.turn(self)
            self._admit_order()
            ended: list[Ended] = []
            try:
                ended = await self._compute.run(self._step)
            except torch.OutOfMemoryError as error:
                self._shrink(error)
            except Exception as error:  # noqa: BLE001 - boundary: the callers own the failure
                self._fail(error)
            for request, answer in ended:
                if request.future.done():
                    continue
                if isinstance(answer, Completion):
                    request.future.set_result(answer)
                else:
                    request.future.set_exception(answer)
            self.attendance.changed()
            await asyncio.sleep(0)  # callers that were answered go on before the next step

    def _admit_order(self) -> None:
        if self._deterministic:
            self._waiting.sort(key=lambda request: request.order)

    def _shrink(self, error: Exception) -> None:
        """Go on with half the rows: what was in one begins again, and draws the same numbers."""
        slots = len(self._rows.table.slots)
        if slots == 1:
            self._fail(
                EngineError(
                    "the accelerator's memory does not hold one sequence: "
                    f"{str(error).partition(chr(10))[0]:.120}",
                    fix="lower max_response_tokens or max_prompt_tokens, or free memory",
                )
            )
            return
        for request in self._rows.active():
            request.begin_again()
            self._waiting.append(request)
        self._rows.renew(slots // 2)
        torch.cuda.empty_cache()
        self.on_shrunk(slots // 2)

    def _fail(self, error: Exception) -> None:
        """Hand the error to everybody and begin anew: what the cache holds cannot be trusted."""
        for request in [*self._rows.active(), *self._waiting]:
            if not request.future.done():
                request.future.set_exception(error)
        self._waiting.clear()
        self._rows.renew()

    # Below: on the compute thread.

    @torch.inference_mode()
    def _step(self) -> list[Ended]:
        """Steps until something ends: after each hand-over, one thread waits for the other."""
        started = time.perf_counter()
        try:
            for _ in range(1 if self._deterministic else STEPS_AT_ONCE):
                ended = self._drawn()
                if ended:
                    break
            return ended
        finally:
            self.statistics.busy_seconds += time.perf_counter() - started

    def _drawn(self) -> list[Ended]:
        """One token more for each request; those that ended by it or could not be drawn for."""
        self._rows.drop_abandoned()
        self._rows.admit(self._waiting)
        self.statistics.prefilled_tokens = self._rows.prefilled_tokens
        wishes, broken = wishes_of(self._rows.active(), self._codec)
        self._rows.retire(list(broken))
        ended: list[Ended] = list(broken.items())
        requests = self._rows.active()
        if not requests:
            return ended
        logits = self._rows.next_logits()
        self.statistics.steps += 1
        tokens, logprobs = draw(logits, [wishes[request] for request in requests])
        done: list[Ended] = []
        for request, token, logprob in zip(requests, tokens, logprobs, strict=True):
            request.take(token, logprob, self._versions.get(request.adapter, self.version))
            reason = request.stop_reason(self._codec, self._max_sequence_tokens)
            if reason is not None:
                done.append((request, request.completion(reason)))
        self._rows.retire([request for request, _ in done])
        return ended + done
