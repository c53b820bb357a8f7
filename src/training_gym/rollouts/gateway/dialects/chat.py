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
    read_body,
    reasoning_tokens,
    token_entries,
)
from training_gym.rollouts.gateway.dialects.chat_messages import (
    ChatMessage,
    deltas_of,
    message_json,
)
from training_gym.rollouts.gateway.dialects.forms import (
    Choice,
    NamedFormat,
    Names,
    ObjectFormat,
    TextFormat,
    answer_form,
)
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.rollouts.policy import Sample
from training_gym.spec.messages import ToolSpec

NEUTRAL: dict[str, Sequence[Any]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "top_logprobs": (0,),
    "reasoning_effort": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
}


_NAMES = Names(schema="response_format")


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


class NamedFunction(Body):
    """The name of a tool."""

    name: str


class NamedTool(Body):
    """The one tool that is to be called."""

    type: Literal["function"]
    function: NamedFunction


class StreamOptions(Body):
    """What a stream tells besides."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class ChatRequest(Body):
    """What is understood of a request."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[Tool] = []
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    response_format: (
        Annotated[TextFormat | ObjectFormat | NamedFormat, Field(discriminator="type")] | None
    ) = None
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

    @property
    def choice(self) -> Choice:
        """Whether tools are to be called."""
        if isinstance(self.tool_choice, NamedTool):
            return Choice("required", self.tool_choice.function.name, self.parallel_tool_calls)
        return Choice(self.tool_choice, parallel=self.parallel_tool_calls)


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
        held = "strict" not in tolerated
        form, asked_by = answer_form(
            _NAMES,
            schema=asked.response_format.wanted if asked.response_format else None,
            choice=asked.choice,
            offered={t.function.name: held and bool(t.function.strict) for t in asked.tools},
        )
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
            form=form,
            form_asked_by=asked_by,
        )

    def answer(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        choices = [
            {
                "index": index,
                "message": message_json(sample.message),
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
        if asked.with_usage:
            head["usage"] = None  # until the last

        def chunk(index: int, delta: dict[str, Any], **more: Any) -> Event:
            choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
            return None, {**head, "choices": [{**choice, **more}]}

        for index, sample in enumerate(samples):
            opening: dict[str, Any] = {"role": "assistant", "content": ""}
            logprobs = _logprobs(sample) if asked.with_logprobs else None
            yield chunk(index, opening, logprobs=logprobs)
            for delta in deltas_of(sample.message):
                yield chunk(index, delta)
            yield chunk(index, {}, finish_reason=finish_of(sample))
        if asked.with_usage:
            yield None, {**head, "choices": [], "usage": usage_of(samples)}
        yield None, "[DONE]"


def tool_of(name: str, description: str | None, schema: dict[str, JsonValue] | None) -> ToolSpec:
    """A tool as ours."""
    return ToolSpec(name=name, description=description or "", parameters=schema or {})


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
        "completion_tokens_details": {"reasoning_tokens": sum(map(reasoning_tokens, samples))},
    }


def _logprobs(sample: Sample) -> dict[str, Any]:
    return {"content": token_entries(sample), "refusal": None}
