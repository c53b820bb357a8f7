"""gpt-oss: an answer is several messages, each with a channel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from training_gym.models.parsers.parsed import Parsed, WrittenCall
from training_gym.spec.messages import ToolSpec

_RECIPIENT = re.compile(r"to=functions\.([\w.-]+)")
_ENDS = re.compile(r"<\|(?:end|return|call)\|>")


def read_harmony(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Analysis is reasoning, commentary to a function a call, everything else is content.

    What does not follow the notation is content as it stands.
    """
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[WrittenCall] = []
    for piece in _ENDS.split(text):
        header, begun, body = piece.partition("<|message|>")
        channel = header.rpartition("<|channel|>")[2]
        recipient = _RECIPIENT.search(header)
        if not begun:
            content.append(piece.removeprefix("<|start|>assistant"))
        elif recipient is not None and tools:
            calls.append(WrittenCall(recipient[1], body))
        elif channel.startswith("analysis"):
            reasoning.append(body)
        else:
            content.append(body)
    thought = "\n".join(reasoning) if reasoning else None
    return Parsed("".join(content), thought, tuple(calls))
