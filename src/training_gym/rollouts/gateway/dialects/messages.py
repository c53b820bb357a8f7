"""Anthropic Messages."""

from __future__ import annotations

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
)
from training_gym.rollouts.gateway.dialects.chat import stops_of, tool_of
from training_gym.rollouts.gateway.dialects.forms import Choice, Names, SchemaFormat, answer_form
from training_gym.rollouts.gateway.dialects.message_blocks import (
    Block,
    TextBlock,
    Turn,
    blocks_of,
    messages_of,
    streamed,
    text_of,
)
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.rollouts.policy import Sample
from training_gym.spec.messages import Message, ToolSpec

NEUTRAL: dict[str, Sequence[Any]] = {
    "thinking": ({"type": "disabled"},),
    "service_tier": ("auto", "standard_only"),
    "container": (),
    "mcp_servers": ([],),
    "context_management": (),
}


_NAMES = Names(schema="output_config.format", parallel="tool_choice.disable_parallel_tool_use")


class Tool(Block):
    """A tool offered."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, JsonValue]
    strict: bool | None = None


class ToolChoice(Body):
    """Whether tools are to be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @property
    def wanted(self) -> Choice:
        """The same in no dialect; raises `Refused` for a name where none belongs."""
        if (self.type == "tool") != (self.name is not None):
            raise Refused(
                f"a tool_choice of type {self.type} "
                + ("with" if self.name else "without")
                + " a name",
                fix='name a tool with {"type": "tool", "name": …}',
                param="tool_choice",
            )
        mode: Literal["auto", "none", "required"] = "required"
        if self.type in ("auto", "none"):
            mode = "auto" if self.type == "auto" else "none"
        return Choice(mode, self.name, not self.disable_parallel_tool_use)


class OutputConfig(Body):
    """How the answer is to be."""

    format: SchemaFormat | None = None


class Metadata(Body):
    """Who asks; changes no answer."""

    user_id: str | None = None


class CountRequest(Body):
    """What is understood of a request to count a prompt's tokens."""

    model: str
    messages: Annotated[list[Turn], Field(min_length=1)]
    system: str | list[TextBlock] = ""
    tools: list[Tool] = []
    tool_choice: ToolChoice = ToolChoice(type="auto")
    output_config: OutputConfig = OutputConfig()

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The conversation as ours."""
        found = [Message(role="system", content=text_of(self.system))] if self.system else []
        for turn in self.messages:
            found += messages_of(turn)
        return tuple(found)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools as ours."""
        return tuple(tool_of(t.name, t.description, t.input_schema) for t in self.tools)


class MessagesRequest(CountRequest):
    """What is understood of a request."""

    max_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    stop_sequences: list[str] = []
    stream: bool = False
    metadata: Metadata | None = None


class Messages:
    """Implements `Dialect`."""

    name = "messages"
    named_errors = True

    def read(self, body: Any, tolerated: frozenset[str], memory: Remembered) -> Asked:
        """See `Dialect`."""
        asked = read_body(MessagesRequest, body, neutral=NEUTRAL, tolerated=tolerated)
        held = "strict" not in tolerated
        form, asked_by = answer_form(
            _NAMES,
            schema=asked.output_config.format.wanted if asked.output_config.format else None,
            choice=asked.tool_choice.wanted,
            offered={tool.name: held and bool(tool.strict) for tool in asked.tools},
        )
        return Asked(
            prompt=asked.prompt,
            model=asked.model,
            draw=Draw(
                temperature=asked.temperature,
                top_p=asked.top_p,
                top_k=asked.top_k,
                max_tokens=asked.max_tokens,
                stop=stops_of(asked.stop_sequences),
            ),
            tools=asked.offered,
            stream=asked.stream,
            form=form,
            form_asked_by=asked_by,
        )

    def read_count(self, body: Any, tolerated: frozenset[str]) -> CountRequest:
        """Understand a request to count a prompt's tokens; raises `Refused`."""
        return read_body(CountRequest, body, neutral=NEUTRAL, tolerated=tolerated)

    def answer(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        (sample,) = samples
        return {
            "id": answer_id,
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": blocks_of(sample.message),
            "stop_reason": _stop_reason(sample),
            "stop_sequence": sample.stop_text,
            "usage": _usage(sample),
        }

    def events(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> Iterator[Event]:
        """See `Dialect`."""
        whole = self.answer(asked, samples, answer_id)
        usage = whole["usage"]
        opening = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
        opening["usage"] = {**usage, "output_tokens": 0}
        yield _event("message_start", message=opening)
        for index, block in enumerate(whole["content"]):
            empty, deltas = streamed(block)
            yield _event("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        end = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
        yield _event("message_delta", delta=end, usage=usage)
        yield _event("message_stop")


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


def _stop_reason(sample: Sample) -> str:
    finish = finish_of(sample)
    if finish == "stop":
        return "end_turn" if sample.stop_text is None else "stop_sequence"
    return "max_tokens" if finish == "length" else "tool_use"


def _usage(sample: Sample) -> dict[str, int]:
    prompt = sample.fidelity.prompt_tokens
    fresh = min(sample.completion.prefilled, prompt)
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": prompt - fresh,
        "cache_creation_input_tokens": 0,
        "output_tokens": len(sample.completion.token_ids),
    }
