"""Anthropic Messages."""

from __future__ import annotations

import json
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
)
from training_gym.rollouts.gateway.dialects.chat import stops_of, tool_of
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.rollouts.policy import Sample
from training_gym.spec.messages import Message, ToolCall, ToolSpec

RAW = "raw_arguments"
"""Name under which arguments that are no JSON object go to the client, as the model wrote them."""

NEUTRAL: dict[str, Sequence[Any]] = {
    "thinking": ({"type": "disabled"},),
    "tool_choice": ({"type": "auto"}, {"type": "auto", "disable_parallel_tool_use": False}),
    "service_tier": ("auto", "standard_only"),
    "container": (),
    "mcp_servers": ([],),
    "context_management": (),
    "output_config": ({},),
}


class Block(Body):
    """What blocks have in common; caching changes no answer."""

    cache_control: JsonValue = None


class TextBlock(Block):
    """A piece of text."""

    type: Literal["text"]
    text: str
    citations: None = None


class ThinkingBlock(Block):
    """Reasoning as it was given to the client; the signature is ours and empty."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class ToolUse(Block):
    """A call as it was given to the client."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, JsonValue]
    caller: JsonValue = None


class ToolResult(Block):
    """A tool's answer. Chat templates know no flag for errors, so the text says it."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] = ""
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """The answer as a template takes it: an error begins with the word."""
        text = _text(self.content)
        if not self.is_error or text.lstrip().lower().startswith("error"):
            return text
        return f"Error: {text}" if text else "Error"


AnyBlock = Annotated[TextBlock | ThinkingBlock | ToolUse | ToolResult, Field(discriminator="type")]


class Turn(Body):
    """What one side said."""

    role: Literal["user", "assistant", "system"]
    content: str | list[AnyBlock]


class Tool(Block):
    """A tool offered."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, JsonValue]


class Metadata(Body):
    """Who asks; changes no answer."""

    user_id: str | None = None


class CountRequest(Body):
    """What is understood of a request to count a prompt's tokens."""

    model: str
    messages: Annotated[list[Turn], Field(min_length=1)]
    system: str | list[TextBlock] = ""
    tools: list[Tool] = []

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The conversation as ours."""
        found = [Message(role="system", content=_text(self.system))] if self.system else []
        for turn in self.messages:
            found += _assistant(turn) if turn.role == "assistant" else _others(turn)
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
            "content": _blocks(sample.message),
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
            empty, deltas = _streamed(block)
            yield _event("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        end = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
        yield _event("message_delta", delta=end, usage=usage)
        yield _event("message_stop")


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


def _text(content: str | Sequence[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _assistant(turn: Turn) -> list[Message]:
    if isinstance(turn.content, str):
        return [Message(role="assistant", content=turn.content)]
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block in turn.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.thinking)
        elif isinstance(block, ToolUse):
            calls.append(ToolCall(id=block.id, name=block.name, arguments=_written(block.input)))
        else:
            raise Refused("an assistant message with a tool_result", fix="that is the user's")
    reasoning = "".join(thoughts) or None
    return [
        Message(
            role="assistant", content="".join(texts), reasoning=reasoning, tool_calls=tuple(calls)
        )
    ]


def _others(turn: Turn) -> list[Message]:
    """Tool results are messages of their own here, in front of what is said besides."""
    role: Literal["user", "system"] = "system" if turn.role == "system" else "user"
    if isinstance(turn.content, str):
        return [Message(role=role, content=turn.content)]
    found: list[Message] = []
    texts: list[TextBlock] = []
    for block in turn.content:
        if isinstance(block, ToolResult):
            result = Message(role="tool", content=block.text, tool_call_id=block.tool_use_id)
            found.append(result)
        elif isinstance(block, TextBlock):
            texts.append(block)
        else:
            raise Refused(f"a {turn.role} message with {block.type}", fix="that is the assistant's")
    return [*found, Message(role=role, content=_text(texts))] if texts else found


def _written(value: dict[str, JsonValue]) -> str:
    if list(value) == [RAW] and isinstance(value[RAW], str):
        return str(value[RAW])
    return json.dumps(value, ensure_ascii=False)


def _input(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {RAW: arguments}


def _blocks(message: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if message.reasoning:
        found.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.text or not message.tool_calls:
        found.append({"type": "text", "text": message.text, "citations": None})
    for call in message.tool_calls:
        use = {"type": "tool_use", "id": call.id, "name": call.name}
        found.append({**use, "input": _input(call.arguments)})
    return found


def _streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it opens, and what follows."""
    if block["type"] == "tool_use":
        text = json.dumps(block["input"], ensure_ascii=False)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(text)]
        return {**block, "input": {}}, deltas
    kind = "thinking" if block["type"] == "thinking" else "text"
    deltas = [{"type": f"{kind}_delta", kind: piece} for piece in pieces(block[kind])]
    return {**block, kind: ""}, deltas


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
