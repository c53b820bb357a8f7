"""Messages and tools in the shape that chat templates of the Hugging Face world expect."""

from __future__ import annotations

import json
from typing import Any

from training_gym.spec.errors import ModelError
from training_gym.spec.messages import MediaPart, Message, ToolCall, ToolSpec


def as_template_message(message: Message, *, literal_arguments: bool) -> dict[str, Any]:
    """One message as a template reads it.

    Args:
        message: text only; raises `ModelError` for images, sounds and films.
        literal_arguments: give tool arguments as the model wrote them, for templates that take
            text; else as the object they parse to, which most templates want.
    """
    media = next((p for p in message.content if isinstance(p, MediaPart)), None)
    if media is not None:
        raise ModelError(
            f"a {message.role} message holds {media.type}, this model is trained on text only",
            fix="leave the media out",
        )
    found: dict[str, Any] = {"role": message.role, "content": message.text}
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
