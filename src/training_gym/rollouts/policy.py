"""The policy as environments see it: chat in, tokens recorded on the way."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.rollouts.record import Path, TokenRecord
from training_gym.spec.errors import EngineError
from training_gym.spec.messages import Message, ToolSpec, assistant
from training_gym.spec.sampling import Prompt, SampleKey, Sampler, Sampling, StopReason
from training_gym.spec.text import TextCodec


class SampledPolicy:
    """Implements `spec.environment.Policy` over a sampler; one object an agent and episode."""

    def __init__(
        self,
        sampler: Sampler,
        codec: TextCodec,
        record: TokenRecord,
        key: SampleKey,
        sampling: Sampling,
        *,
        agent: str = "policy",
        session: str,
    ) -> None:
        """Draw with `sampling` unless a call says otherwise; `key` is the episode's."""
        self._sampler = sampler
        self._codec = codec
        self._record = record
        self._key = key
        self._sampling = sampling
        self._agent = agent
        self._session = session
        self._turn = 0
        self.stop_reasons: list[StopReason] = []
        self.num_tokens = 0
        """Sampled so far."""

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
    ) -> Message:
        """See `spec.environment.Policy`."""
        if not messages or messages[-1].role == "assistant":
            raise EngineError(
                "the conversation has nothing for the policy to answer",
                fix="end the messages with a system, user or tool message",
            )
        return await self._sample(self._record.open(self._agent, messages, tools), sampling)

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        """See `spec.environment.Policy`."""
        return await self._sample(self._record.open_raw(self._agent, text), sampling)

    async def _sample(self, path: Path, sampling: Sampling | None) -> Message:
        settings = sampling or self._sampling
        if settings.max_tokens is None:
            settings = settings.changed(max_tokens=self._sampling.max_tokens)
        turn, self._turn = self._turn, self._turn + 1
        completion = await self._sampler.generate(
            Prompt(token_ids=tuple(path.token_ids)),
            settings,
            self._key.changed(turn=turn, stream=self._stream),
            session=self._session,
        )
        self.stop_reasons.append(completion.stop_reason)
        self.num_tokens += len(completion.token_ids)
        message = assistant(self._codec.decode_visible(completion.token_ids))
        path.add_sampled(completion, message)
        return message

    @property
    def _stream(self) -> str:
        return self._key.stream if self._agent == "policy" else f"{self._key.stream}/{self._agent}"
