"""Messages and tools in the shape that chat templates of the Hugging Face world expect."""

from __future__ import annotations

import json
from typing import Any

from training_gym.spec.errors import ModelError
from training_gym.spec.messages import MediaPart, Message, ToolCall, ToolSpec


def as_template_message(
    message: Message, *, literal_arguments: bool, media: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """One message as a template reads it.

    Args:
        message: raises `ModelError` for images, sounds and films that are not in `media`.
        literal_arguments: give tool arguments as the model wrote them, for templates that take
            text; else as the object they parse to, which most templates want.
        media: kinds of media that the template writes placeholders for.
    """
    found: dict[str, Any] = {"role": message.role, "content": _content(message, media)}
    if message.reasoning is not None:
        # Families read different names for the same thing.
        found |= {"reasoning_content": message.reasoning, "thinking": message.reasoning}
    if message.tool_calls:
        found["tool_calls"] = [_call(call, literal_arguments) for call in message.tool_calls]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        found["name"] = message.name
    return found


def _content(message: Message, media: frozenset[str]) -> str | list[dict[str, str]]:
    """Text in one piece; parts where there is more than text."""
    parts = () if isinstance(message.content, str) else message.content
    held = [part.type for part in parts if isinstance(part, MediaPart)]
    strange = next((kind for kind in held if kind not in media), None)
    if strange is not None:
        raise ModelError(
            f"a {message.role} message holds {strange}, the chat template knows text only",
            fix="leave the media out, or take a model that knows them",
        )
    if not held:
        return message.text
    return [
        {"type": part.type} if isinstance(part, MediaPart) else {"type": "text", "text": part.text}
        for part in parts
    ]


def as_template_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool as JSON schema of a function."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}


def _call(call: ToolCall, literal: bool) -> dict[str, Any]:
    arguments: Any = call.arguments
    if not literal:
        try:
            parsed = json.loads(call.arguments)
        except ValueError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else call.arguments
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
