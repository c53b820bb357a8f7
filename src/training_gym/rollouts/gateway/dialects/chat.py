"""OpenAI Chat Completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from training_gym.rollouts.gateway.asked import (
    Asked,
    Body,
    Draw,
    Event,
    Remembered,
    finish_of,
    pieces,
    read_body,
    token_entries,
)
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.rollouts.policy import Sample
from training_gym.spec.messages import Message, Role, ToolCall, ToolSpec

NEUTRAL: dict[str, Sequence[Any]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "top_logprobs": (0,),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "reasoning_effort": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
}


class Text(Body):
    """A piece of text, with what some clients write about caching."""

    type: Literal["text"]
    text: str
    cache_control: JsonValue = None


Content = str | list[Text] | None


class Function(Body):
    """What a call names."""

    name: str
    arguments: str


class Call(Body):
    """A call as it was given to the client."""

    id: str
    type: Literal["function"] = "function"
    function: Function
    index: int | None = None


class ChatMessage(Body):
    """One message; the fields of all roles."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[None] | None = None

    def message(self) -> Message:
        """The same as ours."""
        role: Role = "system" if self.role == "developer" else self.role
        if role == "tool" and self.tool_call_id is None:
            raise Refused("a tool message without tool_call_id", fix="say which call it answers")
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.tool_calls or ()
        )
        return Message(
            role=role,
            content=text_of(self.content),
            reasoning=self.reasoning_content or self.reasoning or None,
            tool_calls=calls,
            tool_call_id=self.tool_call_id,
            name=self.name,
        )


class FunctionSpec(Body):
    """A tool's name and schema."""

    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool offered."""

    type: Literal["function"]
    function: FunctionSpec


class StreamOptions(Body):
    """What a stream tells besides."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class ChatRequest(Body):
    """What is understood of a request."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[Tool] = []
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Annotated[int, Field(ge=1, le=64)] = 1
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    logprobs: bool = False
    user: str | None = None
    metadata: dict[str, JsonValue] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class Chat:
    """Implements `Dialect`."""

    name = "chat"
    named_errors = False

    def read(self, body: Any, tolerated: frozenset[str], memory: Remembered) -> Asked:
        """See `Dialect`."""
        asked = read_body(ChatRequest, body, neutral=NEUTRAL, tolerated=tolerated)
        tools = [
            tool_of(t.function.name, t.function.description, t.function.parameters)
            for t in asked.tools
        ]
        refuse_strict((tool.function.strict for tool in asked.tools), tolerated)
        return Asked(
            prompt=tuple(message.message() for message in asked.messages),
            model=asked.model,
            draw=Draw(
                temperature=asked.temperature,
                top_p=asked.top_p,
                top_k=None if asked.top_k is None else max(asked.top_k, 0),
                max_tokens=asked.max_completion_tokens or asked.max_tokens,
                min_tokens=asked.min_tokens,
                stop=stops_of(asked.stop),
                seed=asked.seed,
            ),
            tools=tuple(tools),
            count=asked.n,
            stream=asked.stream,
            with_usage=asked.stream_options.include_usage,
            with_logprobs=asked.logprobs,
        )

    def answer(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        choices = [
            {
                "index": index,
                "message": _message(sample.message),
                "finish_reason": finish_of(sample),
                "logprobs": _logprobs(sample) if asked.with_logprobs else None,
            }
            for index, sample in enumerate(samples)
        ]
        head = {"id": answer_id, "object": "chat.completion", "created": int(time.time())}
        return {**head, "model": asked.model, "choices": choices, "usage": usage_of(samples)}

    def events(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> Iterator[Event]:
        """See `Dialect`."""
        created = int(time.time())
        head = {"id": answer_id, "object": "chat.completion.chunk", "created": created}
        head["model"] = asked.model

        def chunk(index: int, delta: dict[str, Any], **more: Any) -> Event:
            choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
            return None, {**head, "choices": [{**choice, **more}]}

        for index, sample in enumerate(samples):
            opening: dict[str, Any] = {"role": "assistant", "content": ""}
            logprobs = _logprobs(sample) if asked.with_logprobs else None
            yield chunk(index, opening, logprobs=logprobs)
            for delta in _deltas(sample.message):
                yield chunk(index, delta)
            yield chunk(index, {}, finish_reason=finish_of(sample))
        if asked.with_usage:
            yield None, {**head, "choices": [], "usage": usage_of(samples)}
        yield None, "[DONE]"


def text_of(content: Content) -> str:
    """The text of a content, in whichever form it came."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def tool_of(name: str, description: str | None, schema: dict[str, JsonValue] | None) -> ToolSpec:
    """A tool as ours."""
    return ToolSpec(name=name, description=description or "", parameters=schema or {})


def refuse_strict(given: Any, tolerated: frozenset[str]) -> None:
    """Raise `Refused` where a tool's arguments would have to follow its schema."""
    if any(given) and "strict" not in tolerated:
        raise Refused(
            "a tool has strict=true, and this sampler cannot hold an answer to a schema",
            fix="set strict=false, or let the session tolerate 'strict'",
            code="unsupported_parameter",
            param="tools.strict",
        )


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """Stop texts as a tuple; raises `Refused` for an empty one."""
    found = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if any(not text for text in found):
        raise Refused("an empty stop text", fix="leave it out", param="stop")
    return found


def usage_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """Tokens of a request, counted where they were sampled."""
    prompt = samples[0].fidelity.prompt_tokens
    drawn = sum(len(sample.completion.token_ids) for sample in samples)
    cached = max(prompt - samples[0].completion.prefilled, 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": drawn,
        "total_tokens": prompt + drawn,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": message.text}
    if message.reasoning is not None:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["content"] = message.text or None
        found["tool_calls"] = [_call(call) for call in message.tool_calls]
    return found


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _deltas(message: Message) -> Iterator[dict[str, Any]]:
    for piece in pieces(message.reasoning or ""):
        yield {"reasoning_content": piece}
    for piece in pieces(message.text):
        yield {"content": piece}
    for index, call in enumerate(message.tool_calls):
        opening = {**_call(call), "index": index}
        opening["function"] = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [opening]}
        for piece in pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _logprobs(sample: Sample) -> dict[str, Any]:
    return {"content": token_entries(sample), "refusal": None}
