"""A sampler that answers from a script, for tests of whatever plays episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from training_gym.spec.sampling import Completion, Prompt, SampleKey, Sampling, WeightUpdate
from training_gym.spec.text import TextCodec

Answer = str | Completion | Exception
"""A text that ends its turn, a completion as it stands, or an error to raise."""

Answerer = Callable[[Prompt, SampleKey], Answer | Awaitable[Answer]]


@dataclass(frozen=True)
class Call:
    """One request as the sampler received it."""

    prompt: Prompt
    sampling: Sampling
    key: SampleKey
    session: str | None


@dataclass
class ScriptedSampler:
    """Implements `spec.sampling.Sampler` without a model.

    `script` holds the answers in order, or is a function `(prompt, key) -> answer`, which may be
    async. A text is encoded and gets the codec's stop token; if that makes it longer than
    `max_tokens` it is cut off there. Log-probabilities are -0.5, -1.0, -1.5, … along an answer.
    """

    codec: TextCodec
    script: Iterable[Answer] | Answerer
    version: int = 0
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin at the start of the script."""
        self._answers = None if callable(self.script) else iter(self.script)

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        *,
        session: str | None = None,
        adapter: str | None = None,
    ) -> Completion:
        """The next answer of the script; see `spec.sampling.Sampler`."""
        self.calls.append(Call(prompt, sampling, key, session))
        await asyncio.sleep(0)
        answer = await self._answer(prompt, key)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Completion) else self.completion(answer, sampling)

    def completion(self, text: str, sampling: Sampling | None = None) -> Completion:
        """`text` as it would have been sampled: stop token included, cut off at `max_tokens`."""
        ids = [*self.codec.encode(text), min(self.codec.stop_ids)]
        limit = None if sampling is None else sampling.max_tokens
        kept = ids[:limit]
        return Completion(
            token_ids=tuple(kept),
            logprobs=tuple(-0.5 * (place + 1) for place in range(len(kept))),
            versions=(self.version,) * len(kept),
            stop_reason="stop" if len(kept) == len(ids) else "length",
        )

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Zero for the first token of each sequence, -1 for the others."""
        return [[0.0, *[-1.0] * (len(ids) - 1)][: len(ids)] for ids in sequences]

    async def update_weights(self, update: WeightUpdate) -> None:
        """Answer as the new version from now on."""
        self.version = update.version

    async def forget(self) -> None:
        """Nothing to do: no answer depends on an earlier one."""

    async def end_session(self, session: str) -> None:
        """Nothing is kept."""

    async def _answer(self, prompt: Prompt, key: SampleKey) -> Answer:
        if self._answers is None:
            assert callable(self.script)
            found = self.script(prompt, key)
            return await found if isinstance(found, Awaitable) else found
        try:
            return next(self._answers)
        except StopIteration:
            raise AssertionError(f"the script has no answer number {len(self.calls)}") from None
