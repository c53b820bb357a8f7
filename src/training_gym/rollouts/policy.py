"""The policy as environments see it: chat in, tokens recorded on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from training_gym.rollouts.graph import Node
from training_gym.rollouts.record import Opened, TokenRecord
from training_gym.spec.episodes import Fidelity
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.forms import AnswerForm
from training_gym.spec.messages import MediaPart, Message, ToolSpec
from training_gym.spec.sampling import (
    Completion,
    Prompt,
    SampleKey,
    Sampler,
    Sampling,
    StopReason,
)
from training_gym.spec.text import TextCodec


@dataclass(frozen=True)
class Sample:
    """One answer with everything known about it."""

    message: Message
    completion: Completion
    fidelity: Fidelity
    decode: Callable[[Sequence[int]], str] = field(repr=False, compare=False)
    """Text of sampled ids, special tokens included."""
    stop_text: str | None = None
    """The stop text that ended it."""
    node: Node | None = None
    """Its place in the record; None: nothing is recorded."""


class SamplingPolicy(Protocol):
    """A policy that also says how an answer was sampled: what a gateway serves."""

    async def sample(
        self,
        messages: Sequence[Message] | str,
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
        cut_stop_text: bool = False,
        delivered: bool = True,
        seed: int | None = None,
    ) -> Sample:
        """The next assistant message, or a raw text's continuation.

        Args:
            messages: the whole conversation, or a text that is continued as it stands.
            tools: what is offered.
            sampling: how to draw; None: the policy's own.
            cut_stop_text: leave the stop text out of the message, as most interfaces do.
            delivered: False where the asker may be gone: the answer is trained on only once
                `node.delivered` is set or the conversation goes on from it.
            seed: of random numbers for this answer alone: the same prompt, sampling and seed draw
                the same tokens, whoever asks and when. None: the episode's numbers. Not for what
                is trained on: episodes of a group would all draw the same.
        """
        ...

    def prompt_length(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> int:
        """Tokens of a conversation's prompt, encoded as if it were new; nothing is recorded.

        A recorded answer may have been sampled in more tokens than its text needs.
        """
        ...


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
        if isinstance(messages, str):
            raise EnvironmentFailure(
                f"chat() was given the text {messages!r:.60} instead of messages",
                fix="write chat([user(text)]), or complete(text) to continue it as it stands",
            )
        return (await self.sample(messages, tools=tools, sampling=sampling)).message

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        """See `spec.environment.Policy`."""
        return (await self.sample(text, sampling=sampling)).message

    async def sample(
        self,
        messages: Sequence[Message] | str,
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
        cut_stop_text: bool = False,
        delivered: bool = True,
        seed: int | None = None,
    ) -> Sample:
        """See `SamplingPolicy`."""
        opened = self._open(messages, tools)
        settings = sampling or self._sampling
        if settings.max_tokens is None:
            settings = settings.changed(max_tokens=self._sampling.max_tokens)
        raw = isinstance(messages, str)
        if settings.form is not None:
            opened = self._record.constrained(opened)
            settings = self._held(settings, opened, tools, raw=raw)
        completion = await self._sampler.generate(
            # The ids are the codec's own: checking each again takes as long as a short template.
            Prompt.model_construct(token_ids=opened.token_ids, media=_media(messages)),
            settings,
            self._next_key() if seed is None else SampleKey(seed=seed, task="", stream="asked"),
            session=self._session,
        )
        self.stop_reasons.append(completion.stop_reason)
        self.num_tokens += len(completion.token_ids)
        message = self._read(completion, opened, tools, raw=raw)
        stop_text = None
        if completion.stop_reason == "stop" and settings.stop:
            message, stop_text = _without_stop(message, settings.stop, cut=cut_stop_text)
        node = self._record.answer(opened.node, completion, message, delivered=delivered)
        return Sample(message, completion, opened.fidelity, self._codec.decode, stop_text, node)

    def prompt_length(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> int:
        """See `SamplingPolicy`."""
        return len(self._codec.encode(self._codec.render(messages, tools=tools)))

    def _open(self, messages: Sequence[Message] | str, tools: Sequence[ToolSpec]) -> Opened:
        if isinstance(messages, str):
            return self._record.open_raw(self._agent, messages)
        wrong = next((each for each in messages if not isinstance(each, Message)), None)
        if wrong is not None:
            raise EnvironmentFailure(
                f"the conversation holds {wrong!r:.60}, which is no message",
                fix="make messages by system(), user(), assistant() and tool()",
            )
        if not messages or messages[-1].role == "assistant":
            raise EnvironmentFailure(
                "the conversation has nothing for the policy to answer",
                fix="end the messages with a system, user or tool message",
            )
        return self._record.open(self._agent, messages, tools)

    def _held(
        self, settings: Sampling, opened: Opened, tools: Sequence[ToolSpec], *, raw: bool
    ) -> Sampling:
        """Settings with the grammar of the answer's form; raises `FormError`."""
        if not isinstance(settings.form, AnswerForm):
            return settings
        grammar = self._codec.grammar(settings.form, after=opened.token_ids, tools=tools, raw=raw)
        return settings.changed(form=grammar)

    def _read(
        self, completion: Completion, opened: Opened, tools: Sequence[ToolSpec], *, raw: bool
    ) -> Message:
        if raw:
            text = self._codec.decode_visible(completion.token_ids)
            return Message(role="assistant", content=text)
        return self._codec.read_answer(
            completion.token_ids,
            after=opened.token_ids,
            tools=tools,
            first_call=self._record.next_call,
        )

    def _next_key(self) -> SampleKey:
        """Of the episode's random numbers, those of its next turn."""
        stream = self._key.stream
        if self._agent != "policy":
            stream = f"{stream}/{self._agent}"
        key = self._key.model_copy(update={"turn": self._turn, "stream": stream})
        self._turn += 1
        return key


def _media(messages: Sequence[Message] | str) -> tuple[str, ...]:
    """Content addresses of what placeholder tokens stand for, in their order."""
    if isinstance(messages, str):
        return ()
    return tuple(
        part.sha256
        for message in messages
        if not isinstance(message.content, str)
        for part in message.content
        if isinstance(part, MediaPart)
    )


def _without_stop(
    message: Message, stops: Sequence[str], *, cut: bool
) -> tuple[Message, str | None]:
    """The message up to the stop text that ended it, and that text; None: none did."""
    text = message.text
    found = [(text.find(stop), stop) for stop in stops if stop in text]
    if not found:
        return message, None
    place, stop = min(found)
    return (message.changed(content=text[:place]) if cut else message), stop
