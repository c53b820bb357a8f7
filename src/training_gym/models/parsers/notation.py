"""Reading JSON out of longer texts without changing a character of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from training_gym.models.parsers.parsed import WrittenCall
from training_gym.spec.messages import ToolSpec

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_BROKEN = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*', re.S)


def object_fields(text: str, start: int = 0) -> tuple[dict[str, str], int]:
    """The fields of the JSON object at `start`, each value as it is written, and where it ends.

    Raises `ValueError` where there is no whole object.
    """
    place = _skip(text, start)
    if text[place : place + 1] != "{":
        raise ValueError("no object")
    place = _skip(text, place + 1)
    fields: dict[str, str] = {}
    while text[place : place + 1] != "}":
        key, place = _value(text, place)
        place = _skip(text, place)
        if not isinstance(key, str) or text[place : place + 1] != ":":
            raise ValueError("no key")
        begin = _skip(text, place + 1)
        _, place = _value(text, begin)
        fields[key] = text[begin:place]
        place = _skip(text, place)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "}":
            raise ValueError("no end")
    return fields, place + 1


def json_call(text: str) -> WrittenCall | None:
    """A call written as `{"name": …, "arguments": …}`; broken arguments come back as they stand.

    None where not even a name can be read.
    """
    try:
        fields, end = object_fields(text)
    except ValueError:
        return _broken_call(text)
    try:
        name = json.loads(fields.get("name", "null"))
    except ValueError:
        name = None
    if not isinstance(name, str) or not name or text[end:].strip():
        return None
    return WrittenCall(name, fields.get("arguments", fields.get("parameters", "{}")))


def typed_value(text: str, name: str, tool: ToolSpec | None) -> object:
    """An argument written without quotes, as the tool's schema wants it: text, or JSON."""
    properties = tool.parameters.get("properties") if tool else None
    schema = properties.get(name) if isinstance(properties, dict) else None
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def tool_named(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool of that name, if it was offered."""
    return next((tool for tool in tools if tool.name == name), None)


def _broken_call(text: str) -> WrittenCall | None:
    found = _BROKEN.match(text.strip())
    if found is None:
        return None
    return WrittenCall(found[1], text.strip()[found.end() :].removesuffix("}").rstrip())


def _value(text: str, place: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, place)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()


def _refuse(word: str) -> object:
    raise ValueError(word)
