"""The sampler that hands requests to vLLM: many calls of `generate`, one engine, one driver."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.drawing import SamplerStatistics, require_sampleable
from training_gym.engines.local.draws import stream_of
from training_gym.engines.local.network import Network
from training_gym.engines.local.vllm.weights import plain_weights
from training_gym.spec.errors import EngineError, FormError
from training_gym.spec.sampling import Completion, Prompt, SampleKey, Sampling, WeightUpdate
from training_gym.spec.text import TextCodec


@dataclass(eq=False)
class _Asked:
    """One call of `generate` in flight."""

    prompt: Prompt
    wish: Any
    cut: bool
    """Whether the context ends the answer before the sampling does."""
    answer: asyncio.Future[Completion]
    versions: list[int] = field(default_factory=list)


class VllmSampler:
    """Implements `RunSampler` over a vLLM engine in this process."""

    def __init__(
        self,
        engine: Any,
        network: Network,
        codec: TextCodec,
        compute: Compute,
        *,
        max_sequence_tokens: int,
    ) -> None:
        """Draw with `engine` (see `start_vllm`), whose weights become those of `network`.

        Until the first `take_up` or `update_weights` it draws from the files it was started over.
        """
        self._engine = engine
        self._network = network
        self._codec = codec
        self._compute = compute
        self._max_sequence_tokens = max_sequence_tokens
        self._numbers = itertools.count()
        self._asked: dict[str, _Asked] = {}
        self._new: deque[str] = deque()
        self._given_up: deque[str] = deque()
        self._driver: asyncio.Task[None] | None = None
        self.version = 0
        """Of the weights."""
        self.statistics = SamplerStatistics()

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        *,
        session: str | None = None,
        adapter: str | None = None,
    ) -> Completion:
        """See `spec.sampling.Sampler`. Raises `EngineError` for what cannot be sampled here."""
        require_sampleable(prompt, sampling)
        if sampling.form is not None:
            raise FormError(
                "vLLM in this process holds no answer to a form",
                fix="leave engine.sampler out, or leave the form of answers open",
            )
        if adapter not in (None, self._network.own_adapter):
            raise EngineError(
                f"vLLM samples what is trained here, and {adapter!r} is not",
                fix="leave engine.sampler out to sample several adapters side by side",
            )
        assert sampling.max_tokens is not None
        room = self._max_sequence_tokens - len(prompt.token_ids)
        if room <= 0:
            return Completion(token_ids=(), logprobs=(), versions=(), stop_reason="context")
        name = str(next(self._numbers))
        asked = self._asked[name] = _Asked(
            prompt,
            _parameters(sampling, key, self._codec, limit=min(room, sampling.max_tokens)),
            cut=room <= sampling.max_tokens,
            answer=asyncio.get_running_loop().create_future(),
        )
        self._new.append(name)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            return await asked.answer
        except asyncio.CancelledError:
            self._given_up.append(name)
            raise
        finally:
            self._asked.pop(name, None)

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `spec.sampling.Sampler`; computed with the weights that are trained."""
        return [await self._compute.run(self._network.score, ids) for ids in sequences]

    async def update_weights(self, update: WeightUpdate) -> None:
        """See `spec.sampling.Sampler`; `EngineError` for anything but the weights in memory."""
        if update.source != "memory" or update.adapter not in (None, self._network.own_adapter):
            raise EngineError(
                f"vLLM samples the weights that are trained here, not {update.source!r}"
                + (f" for adapter {update.adapter!r}" if update.adapter else ""),
                fix="leave engine.sampler out to serve several adapters",
            )
        await self._compute.run(self.take_up, update.version)

    def take_up(self, version: int) -> None:
        """See `RunSampler`. Answers being drawn go on with the new weights.

        What was computed for them under the old ones is computed again.
        """
        with torch.no_grad():
            weights = plain_weights(self._network.model)
            self._engine.apply_model(lambda model: _take_in(model, weights))
        self._engine.reset_prefix_cache(reset_running_requests=True)
        self.version = version

    async def forget(self) -> None:
        """See `RunSampler`."""
        await self._compute.run(self._engine.reset_prefix_cache, True)

    async def end_session(self, session: str) -> None:
        """Nothing to do: vLLM drops what it has cached as room is needed."""

    @contextlib.asynccontextmanager
    async def presence(self, session: str) -> AsyncIterator[None]:
        """See `RunSampler`; nothing here waits for anybody."""
        yield

    async def close(self) -> None:
        """See `RunSampler`."""
        if self._driver is not None:
            self._driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._driver
        for asked in self._asked.values():
            asked.answer.cancel()

    async def _drive(self) -> None:
        while self._asked or self._given_up:
            try:
                ended = await self._compute.run(self._step)
            except Exception as error:  # noqa: BLE001 - boundary: the callers own the failure
                self._fail(error)
                return
            for asked, completion in ended:
                if not asked.answer.done():
                    asked.answer.set_result(completion)
            await asyncio.sleep(0)  # callers that were answered ask again before the next step

    def _fail(self, error: Exception) -> None:
        for name, asked in self._asked.items():
            self._given_up.append(name)
            if not asked.answer.done():
                asked.answer.set_exception(error)
        self._new.clear()

    # Below: on the compute thread.

    def _step(self) -> list[tuple[_Asked, Completion]]:
        """One token more for each request; those that ended by it."""
        started = time.perf_counter()
        try:
            self._hand_over()
            if not self._engine.has_unfinished_requests():
                return []
            self.statistics.steps += 1
            return self._ended(self._engine.step())
        finally:
            self.statistics.busy_seconds += time.perf_counter() - started

    def _hand_over(self) -> None:
        while self._given_up:
            self._engine.abort_request([self._given_up.popleft()])
        while self._new:
            name = self._new.popleft()
            if (asked := self._asked.get(name)) is not None:  # else given up before it began
                prompt = {"prompt_token_ids": list(asked.prompt.token_ids)}
                self._engine.add_request(name, prompt, asked.wish)

    def _ended(self, outputs: Sequence[Any]) -> list[tuple[_Asked, Completion]]:
        ended = []
        for output in outputs:
            if (asked := self._asked.get(output.request_id)) is None:
                continue
            drawn = len(output.outputs[0].token_ids) - len(asked.versions)
            asked.versions.extend([self.version] * drawn)
            if output.finished:
                completion = _completion(output, asked)
                self.statistics.prefilled_tokens += completion.prefilled
                ended.append((asked, completion))
        return ended


def _take_in(model: Any, weights: Any) -> None:
    model.load_weights(weights)  # names what it loaded: nothing to hand back


def _parameters(sampling: Sampling, key: SampleKey, codec: TextCodec, *, limit: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=limit,
        min_tokens=min(sampling.min_tokens, limit),
        stop=list(sampling.stop),
        stop_token_ids=sorted(codec.stop_ids),
        ignore_eos=True,  # what ends an answer is in stop_ids, and only that
        logprobs=0,
        seed=stream_of(key) % 2**63,
    )


def _completion(output: Any, asked: _Asked) -> Completion:
    answer = output.outputs[0]
    ids = tuple(answer.token_ids)
    tables = zip(ids, answer.logprobs, strict=True)
    return Completion(
        token_ids=ids,
        logprobs=tuple(table[token].logprob for token, table in tables),
        versions=tuple(asked.versions),
        stop_reason="stop"
        if answer.finish_reason == "stop"
        else ("context" if asked.cut else "length"),
        prefilled=len(asked.prompt.token_ids) - (output.num_cached_tokens or 0),
    )
