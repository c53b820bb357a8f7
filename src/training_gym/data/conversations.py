"""Conversations as datasets hold them: lists of role and content, with OpenAI's tool calls."""

from __future__ import annotations

import json
from typing import Any

from training_gym.spec.errors import DataError, SpecError
from training_gym.spec.messages import Message

_FIX = 'write each message as {"role": "user", "content": "…"}'


def read_conversation(given: Any, where: str) -> tuple[Message, ...]:
    """The messages of a row; a string is read as JSON. Raises `DataError` that names the row."""
    if given is None:
        return ()
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise DataError(
                f"{where}: {given!r:.40} is not a conversation in JSON",
                fix="set input_format='text' if the column holds plain prompts",
            ) from None
    if not isinstance(given, list | tuple):
        raise DataError(f"{where}: a conversation is a list, not {given!r:.40}", fix=_FIX)
    return tuple(_message(item, number, where) for number, item in enumerate(given, start=1))


def given_answer(given: Any, name: str, where: str) -> str:
    """The text of one answer of a pair: a string, or a conversation that ends with it.

    Data sets of preferences often repeat the prompt in both conversations; it is read from the
    prompt's own column. Raises `DataError` that names the row.
    """
    if isinstance(given, str):
        return given
    messages = read_conversation(given, where) if isinstance(given, list) else ()
    if not messages or messages[-1].role != "assistant" or messages[-1].tool_calls:
        raise DataError(
            f"{where}: the {name} answer is no text: {given!r:.60}",
            fix="give a string, or messages that end with a plain one of the assistant",
        )
    return messages[-1].text


def _message(item: Any, number: int, where: str) -> Message:
    if not isinstance(item, dict):
        raise DataError(f"{where}: message {number} is {item!r:.40}", fix=_FIX)
    # Tables fill the keys that a message lacks with null.
    fields = {key: value for key, value in item.items() if value is not None}
    if "tool_calls" in fields:
        fields["tool_calls"] = [_tool_call(call) for call in fields["tool_calls"]]
    try:
        return Message.read(fields)
    except SpecError as error:
        raise DataError(f"{where}: message {number}: {error.message}", fix=_FIX) from None


def _tool_call(call: Any) -> Any:
    """OpenAI nests name and arguments under `function`; ours lie flat."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    arguments = function.get("arguments", "")
    return {
        "id": call.get("id") or "",
        "name": function.get("name") or "",
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
    }
