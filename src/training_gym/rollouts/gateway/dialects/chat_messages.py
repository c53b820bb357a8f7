"""The messages of OpenAI's Chat Completions, as they come and as they go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import JsonValue

from training_gym.rollouts.gateway.asked import Body, pieces
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.spec.messages import Message, Role, ToolCall


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


def text_of(content: Content) -> str:
    """The text of a content, in whichever form it came."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def message_json(message: Message) -> dict[str, Any]:
    """An answer as a message."""
    found: dict[str, Any] = {"role": "assistant", "content": message.text}
    found |= {"refusal": None, "annotations": []}
    if message.reasoning is not None:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["content"] = message.text or None
        found["tool_calls"] = [_call(call) for call in message.tool_calls]
    return found


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def deltas_of(message: Message) -> Iterator[dict[str, Any]]:
    """The same in pieces."""
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
