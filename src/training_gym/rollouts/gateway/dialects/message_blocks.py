"""The blocks of Anthropic's Messages: what a conversation consists of there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from training_gym.rollouts.gateway.asked import Body, pieces
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.spec.messages import Message, ToolCall

RAW = "raw_arguments"
"""Name under which arguments that are no JSON object go to the client, as the model wrote them."""


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
        text = text_of(self.content)
        if not self.is_error or text.lstrip().lower().startswith("error"):
            return text
        return f"Error: {text}" if text else "Error"


AnyBlock = Annotated[TextBlock | ThinkingBlock | ToolUse | ToolResult, Field(discriminator="type")]


class Turn(Body):
    """What one side said."""

    role: Literal["user", "assistant", "system"]
    content: str | list[AnyBlock]


def text_of(content: str | Sequence[TextBlock]) -> str:
    """The text of a content, in whichever form it came."""
    return content if isinstance(content, str) else "".join(block.text for block in content)


def messages_of(turn: Turn) -> list[Message]:
    """A turn as ours; raises `Refused` for a block that is the other side's."""
    return _answer(turn) if turn.role == "assistant" else _said(turn)


def _answer(turn: Turn) -> list[Message]:
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


def _said(turn: Turn) -> list[Message]:
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
    return [*found, Message(role=role, content=text_of(texts))] if texts else found


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


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """An answer as blocks."""
    found: list[dict[str, Any]] = []
    if message.reasoning:
        found.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.text or not message.tool_calls:
        found.append({"type": "text", "text": message.text, "citations": None})
    for call in message.tool_calls:
        use = {"type": "tool_use", "id": call.id, "name": call.name}
        found.append({**use, "input": _input(call.arguments)})
    return found


def streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it opens, and what follows."""
    if block["type"] == "tool_use":
        text = json.dumps(block["input"], ensure_ascii=False)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(text)]
        return {**block, "input": {}}, deltas
    kind = "thinking" if block["type"] == "thinking" else "text"
    deltas = [{"type": f"{kind}_delta", kind: piece} for piece in pieces(block[kind])]
    if kind == "thinking":
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return {**block, kind: ""}, deltas
