"""The items of OpenAI's Responses: what a conversation consists of there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, JsonValue, Tag

from training_gym.rollouts.gateway.asked import Body
from training_gym.spec.messages import Message, Role, ToolCall


class TextPart(Body):
    """A piece of text, of either side."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[JsonValue] | None = None
    logprobs: list[JsonValue] | None = None


class MessageItem(Body):
    """What one side said."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    id: str | None = None
    status: str | None = None
    phase: JsonValue = None


class CallItem(Body):
    """A call as it was given to the client."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None
    namespace: None = None
    caller: None = None


class OutputItem(Body):
    """A tool's answer."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[TextPart]
    id: str | None = None
    status: str | None = None
    caller: None = None


class ThoughtPart(Body):
    """A piece of reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Body):
    """Reasoning as it was given to the client."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ThoughtPart] = []
    content: list[ThoughtPart] | None = None
    encrypted_content: None = None
    status: str | None = None


def _kind(item: Any) -> str:
    found = item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", "")
    return str(found)


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]


def messages_of(items: Sequence[Item]) -> list[Message]:
    """Items as messages: reasoning, text and calls of one answer are one message here."""
    found: list[Message] = []
    open_answer = False
    for item in items:
        piece = _piece(item)
        if piece.role == "assistant" and open_answer and not _begins(item, found[-1]):
            found[-1] = _joined(found[-1], piece)
        else:
            found.append(piece)
        open_answer = piece.role == "assistant"
    return found


def items_of(message: Message, answer_id: str, *, logprobs: list[Any]) -> list[dict[str, Any]]:
    """An answer as items."""
    found: list[dict[str, Any]] = []
    done = {"status": "completed"}
    if message.reasoning:
        thought = [{"type": "reasoning_text", "text": message.reasoning}]
        head = {"id": f"rs_{answer_id}", "type": "reasoning", "summary": []}
        found.append({**head, "content": thought, "encrypted_content": None, **done})
    if message.text or not message.tool_calls:
        part = {"type": "output_text", "text": message.text, "annotations": []}
        content = [{**part, "logprobs": logprobs}]
        head = {"id": f"msg_{answer_id}", "type": "message", "role": "assistant"}
        found.append({**head, "content": content, **done})
    for call in message.tool_calls:
        head = {"id": f"fc_{answer_id}_{call.id}", "type": "function_call", "call_id": call.id}
        found.append({**head, "name": call.name, "arguments": call.arguments, **done})
    return found


def _piece(item: Item) -> Message:
    if isinstance(item, MessageItem):
        role: Role = "system" if item.role == "developer" else item.role
        return Message(role=role, content=_text(item.content))
    if isinstance(item, CallItem):
        call = ToolCall(id=item.call_id, name=item.name, arguments=item.arguments)
        return Message(role="assistant", tool_calls=(call,))
    if isinstance(item, OutputItem):
        return Message(role="tool", content=_text(item.output), tool_call_id=item.call_id)
    thought = item.content or item.summary
    return Message(role="assistant", reasoning="".join(part.text for part in thought) or None)


def _begins(item: Item, before: Message) -> bool:
    """Whether an item of the assistant's begins another answer: the order within one is fixed."""
    if isinstance(item, CallItem):
        return False
    if isinstance(item, MessageItem):
        return bool(before.text or before.tool_calls)
    return True


def _joined(first: Message, second: Message) -> Message:
    return Message(
        role="assistant",
        content=first.text + second.text,
        reasoning=first.reasoning or second.reasoning,
        tool_calls=first.tool_calls + second.tool_calls,
    )


def _text(content: str | Sequence[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
