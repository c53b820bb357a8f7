"""When a message that comes back is the one that was recorded.

Harnesses keep their own copy of a conversation and write it anew for every request: keys of JSON
arguments change places, spaces come and go, empty content becomes null, reasoning is left out. None
of that changes what was said. Anything else does, and is another conversation.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence

from training_gym.spec.messages import MediaPart, Message, ToolCall, ToolSpec


def same_messages(recorded: Sequence[Message], sent: Sequence[Message]) -> bool:
    """Whether each message sent means what the recorded one in its place means."""
    return len(recorded) == len(sent) and all(map(same_message, recorded, sent))


def same_message(recorded: Message, sent: Message) -> bool:
    """Whether `sent` means what was recorded; reasoning that it leaves out is no difference."""
    if recorded is sent or recorded == sent:
        return True
    if sent.reasoning and _bare(sent.reasoning) != _bare(recorded.reasoning or ""):
        return False
    return meaning(recorded) == meaning(sent)


def meaning(message: Message) -> Hashable:
    """What a message says, without its reasoning: equal for equal meaning."""
    return (
        message.role,
        message.name,
        message.tool_call_id,
        _content(message),
        tuple(_call(call) for call in message.tool_calls),
    )


def tools_meaning(tools: Sequence[ToolSpec]) -> Hashable:
    """What is offered, in its order, which templates keep."""
    return tuple((tool.name, tool.description, _canonical(tool.parameters)) for tool in tools)


def _content(message: Message) -> Hashable:
    """Text in one piece between media; at the ends of an answer spaces do not count."""
    if isinstance(message.content, str):
        text = message.content
        return (_bare(text) if message.role == "assistant" else text,)
    pieces: list[Hashable] = [""]
    for part in message.content:
        if isinstance(part, MediaPart):
            pieces += [(part.type, part.sha256), ""]
        else:
            pieces[-1] = f"{pieces[-1]}{part.text}"
    if message.role == "assistant" and len(pieces) == 1:
        return (_bare(str(pieces[0])),)
    return tuple(pieces)


def _call(call: ToolCall) -> Hashable:
    """Arguments as the value they stand for; text that is no JSON stands for itself."""
    try:
        value = _canonical(json.loads(call.arguments))
    except (ValueError, RecursionError):
        value = f"text {call.arguments}"
    return call.id, call.name, value


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _bare(text: str) -> str:
    return text.strip()
