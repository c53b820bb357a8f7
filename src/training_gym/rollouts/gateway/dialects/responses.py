"""OpenAI Responses."""

from __future__ import annotations

import itertools
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
    reasoning_tokens,
    token_entries,
)
from training_gym.rollouts.gateway.dialects.chat import tool_of
from training_gym.rollouts.gateway.dialects.forms import (
    Choice,
    Names,
    ObjectFormat,
    SchemaFormat,
    TextFormat,
    answer_form,
)
from training_gym.rollouts.gateway.dialects.response_items import Item, items_of, messages_of
from training_gym.rollouts.policy import Sample
from training_gym.spec.messages import Message

_NAMES = Names(schema="text.format")
_LOGPROBS = "message.output_text.logprobs"

NEUTRAL: dict[str, Sequence[Any]] = {
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "reasoning": ({}, {"effort": None}),
    "background": (False,),
    "service_tier": ("auto", "default"),
    "conversation": (),
    "max_tool_calls": (),
    "prompt": (),
}


class Tool(Body):
    """A tool offered."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class NamedTool(Body):
    """The one tool that is to be called."""

    type: Literal["function"]
    name: str


class TextSettings(Body):
    """How the answer's text is to be."""

    format: Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] = (
        TextFormat(type="text")
    )
    verbosity: Literal["medium"] | None = None


class ResponsesRequest(Body):
    """What is understood of a request."""

    model: str
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str = ""
    previous_response_id: str | None = None
    tools: list[Tool] = []
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    text: TextSettings = TextSettings()
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    include: list[Literal["message.output_text.logprobs"]] = []
    stream: bool = False
    stream_options: dict[str, Literal[False]] = {}
    store: bool = True
    user: str | None = None
    metadata: dict[str, JsonValue] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def choice(self) -> Choice:
        """Whether tools are to be called."""
        if isinstance(self.tool_choice, NamedTool):
            return Choice("required", self.tool_choice.name, self.parallel_tool_calls)
        return Choice(self.tool_choice, parallel=self.parallel_tool_calls)


class Responses:
    """Implements `Dialect`."""

    name = "responses"
    named_errors = False

    def read(self, body: Any, tolerated: frozenset[str], memory: Remembered) -> Asked:
        """See `Dialect`."""
        asked = read_body(ResponsesRequest, body, neutral=NEUTRAL, tolerated=tolerated)
        held = "strict" not in tolerated
        form, asked_by = answer_form(
            _NAMES,
            schema=asked.text.format.wanted,
            choice=asked.choice,
            offered={tool.name: held and bool(tool.strict) for tool in asked.tools},
        )
        before: list[Message] = []
        if asked.previous_response_id is not None:
            before = [m for m in memory.recall(asked.previous_response_id) if m.role != "system"]
        if asked.instructions:
            before = [Message(role="system", content=asked.instructions), *before]
        if isinstance(asked.input, str):
            said = [Message(role="user", content=asked.input)]
        else:
            said = messages_of(asked.input)
        return Asked(
            prompt=(*before, *said),
            model=asked.model,
            draw=Draw(
                temperature=asked.temperature,
                top_p=asked.top_p,
                max_tokens=asked.max_output_tokens,
            ),
            tools=tuple(tool_of(t.name, t.description, t.parameters) for t in asked.tools),
            stream=asked.stream,
            with_logprobs=_LOGPROBS in asked.include,
            form=form,
            form_asked_by=asked_by,
            shown={
                "instructions": asked.instructions or None,
                "metadata": asked.metadata or {},
                "temperature": asked.temperature,
                "top_p": asked.top_p,
                "max_output_tokens": asked.max_output_tokens,
                "previous_response_id": asked.previous_response_id,
                "tools": [tool.model_dump() for tool in asked.tools],
                "tool_choice": asked.model_dump(include={"tool_choice"})["tool_choice"],
                "parallel_tool_calls": asked.parallel_tool_calls,
                "text": asked.text.model_dump(by_alias=True, exclude_none=True),
            },
        )

    def answer(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        (sample,) = samples
        cut = finish_of(sample) == "length"
        logprobs = token_entries(sample) if asked.with_logprobs else []
        found = self._head(asked, answer_id)
        found["status"] = "incomplete" if cut else "completed"
        found["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        found["output"] = items_of(sample.message, answer_id, logprobs=logprobs)
        found["usage"] = _usage(sample)
        return found

    def events(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> Iterator[Event]:
        """See `Dialect`."""
        whole = self.answer(asked, samples, answer_id)
        opening = self._head(asked, answer_id)
        numbers = itertools.count()

        def event(kind: str, **fields: Any) -> Event:
            return kind, {"type": kind, "sequence_number": next(numbers), **fields}

        yield event("response.created", response=opening)
        yield event("response.in_progress", response=opening)
        for index, item in enumerate(whole["output"]):
            place = {"output_index": index}
            yield event("response.output_item.added", item=_empty(item), **place)
            for kind, fields in _parts(item):
                yield event(kind, item_id=item["id"], **place, **fields)
            yield event("response.output_item.done", item=item, **place)
        end = "incomplete" if whole["status"] == "incomplete" else "completed"
        yield event(f"response.{end}", response=whole)

    def _head(self, asked: Asked, answer_id: str) -> dict[str, Any]:
        return {
            "id": answer_id,
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "model": asked.model,
            "output": [],
            "truncation": "disabled",
            "error": None,
            "incomplete_details": None,
            **(asked.shown or {}),
        }


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    begun: dict[str, Any] = {**item, "status": "in_progress"}
    begun["arguments" if item["type"] == "function_call" else "content"] = (
        "" if item["type"] == "function_call" else []
    )
    return begun


def _parts(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events between an item's start and its end."""
    if item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {"delta": piece}
        done = {"arguments": item["arguments"]}
        yield "response.function_call_arguments.done", done
        return
    thought = item["type"] == "reasoning"
    kind = "response.reasoning_text" if thought else "response.output_text"
    for index, part in enumerate(item["content"]):
        place = {"content_index": index}
        more: dict[str, Any] = {} if thought else {"logprobs": []}
        yield "response.content_part.added", {**place, "part": {**part, "text": "", **more}}
        for piece in pieces(part["text"]):
            yield f"{kind}.delta", {**place, "delta": piece, **more}
        if not thought:  # the same without bytes: so is the event's own kind of entry
            names = ("token", "logprob", "top_logprobs")
            entries = part["logprobs"]
            more = {"logprobs": [{name: entry[name] for name in names} for entry in entries]}
        yield f"{kind}.done", {**place, "text": part["text"], **more}
        yield "response.content_part.done", {**place, "part": part}


def _usage(sample: Sample) -> dict[str, Any]:
    prompt, drawn = sample.fidelity.prompt_tokens, len(sample.completion.token_ids)
    cached = max(prompt - sample.completion.prefilled, 0)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": drawn,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens(sample)},
        "total_tokens": prompt + drawn,
    }
