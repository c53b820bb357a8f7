"""Families that mark every argument by itself: Qwen3-Coder and Qwen3.5, GLM-4.5, Gemma 4."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from training_gym.models.parsers.notation import tool_named, typed_value
from training_gym.models.parsers.parsed import Parsed, WrittenCall
from training_gym.spec.messages import ToolSpec

Found = TypeVar("Found")

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*?)</function>\s*", re.S)
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.S)
_GLM_NAME = re.compile(r"\s*([^\n<]+?)\s*(?=<arg_key>|$)", re.S)
_GLM_PAIR = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.S)
_GEMMA = re.compile(r"<\|tool_call>call:([\w.-]+)(\{.*?\})<tool_call\|>", re.S)
_QUOTE = '<|"|>'
_GEMMA_TOKEN = re.compile(r'<\|"\|>(.*?)<\|"\|>|([\w.+-]+)|([{}\[\]:,])', re.S)


def qwen_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`."""

    def read(block: str) -> WrittenCall | None:
        found = _FUNCTION.fullmatch(block)
        if found is None or _PARAMETER.sub("", found[2]).strip():
            return None
        return _call(found[1].strip(), _PARAMETER.findall(found[2]), tools)

    return _blocks(text, read)


def glm_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """`<tool_call>name`, then `<arg_key>` and `<arg_value>` in turn."""

    def read(block: str) -> WrittenCall | None:
        name = _GLM_NAME.match(block)
        if name is None or _GLM_PAIR.sub("", block[name.end() :]).strip():
            return None
        return _call(name[1], _GLM_PAIR.findall(block, name.end()), tools)

    return _blocks(text, read)


def gemma_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """`<|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>`, several in a row."""
    place = text.find("<|tool_call>")
    found = _GEMMA.findall(text)
    if not found or _GEMMA.sub("", text[place:]).strip():
        return None
    calls = []
    for name, body in found:
        try:
            calls.append(WrittenCall(name, _dumped(_Gemma(body).whole())))
        except (ValueError, RecursionError):
            return None
    return Parsed(text[:place].rstrip(), calls=tuple(calls))


class _Gemma:
    """Reads Gemma's notation: JSON with bare keys and with a token for every quotation mark."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.groups() for match in _GEMMA_TOKEN.finditer(text)]
        if _GEMMA_TOKEN.sub("", text).strip():
            raise ValueError("not Gemma's notation")
        self._place = 0

    def whole(self) -> object:
        """The one value that the text is."""
        value = self._value()
        if self._place != len(self._tokens):
            raise ValueError("more behind the value")
        return value

    def _value(self) -> object:
        quoted, bare, mark = self._next()
        if quoted is not None:
            return quoted
        if bare is not None:
            return json.loads(bare)
        if mark == "{":
            return dict(self._until("}", self._pair))
        if mark == "[":
            return self._until("]", self._value)
        raise ValueError(f"{mark} begins no value")

    def _pair(self) -> tuple[str, object]:
        quoted, bare, _ = self._next()
        key = bare if quoted is None else quoted
        if key is None or self._next()[2] != ":":
            raise ValueError("no key")
        return key, self._value()

    def _until(self, end: str, read: Callable[[], Found]) -> list[Found]:
        found: list[Found] = []
        while not self._at(end):
            found.append(read())
            if not self._at(end) and self._next()[2] != ",":
                raise ValueError("no comma")
        self._next()
        return found

    def _at(self, mark: str) -> bool:
        return self._place < len(self._tokens) and self._tokens[self._place][2] == mark

    def _next(self) -> tuple[str | None, str | None, str | None]:
        if self._place == len(self._tokens):
            raise ValueError("cut off")
        self._place += 1
        quoted, bare, mark = self._tokens[self._place - 1]
        return quoted, bare, mark


def _blocks(text: str, read: Callable[[str], WrittenCall | None]) -> Parsed | None:
    place = text.find("<tool_call>")
    blocks = _BLOCK.findall(text)
    if not blocks or _BLOCK.sub("", text[place:]).strip():
        return None
    calls = [read(block) for block in blocks]
    named = tuple(call for call in calls if call is not None)
    if len(named) < len(calls):
        return None
    return Parsed(text[:place].rstrip(), calls=named)


def _call(name: str, pairs: Sequence[tuple[str, str]], tools: Sequence[ToolSpec]) -> WrittenCall:
    tool = tool_named(name, tools)
    values = {key.strip(): typed_value(value, key.strip(), tool) for key, value in pairs}
    return WrittenCall(name, _dumped(values))


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
