"""Families that write calls as JSON: Hermes and Qwen, Llama 3, Mistral, GLM-4, DeepSeek."""

from __future__ import annotations

import re
from collections.abc import Sequence

from training_gym.models.parsers.notation import json_call, object_fields
from training_gym.models.parsers.parsed import Parsed, WrittenCall
from training_gym.spec.messages import ToolSpec

_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
_MISTRAL_NAMED = re.compile(r"\[TOOL_CALLS\](\w[\w.-]*)(?:\[CALL_ID\]\w+)?\[ARGS\]")
_GLM4 = re.compile(r"\s*([\w.-]+)\n(\{.*)", re.S)
_DEEPSEEK_CALL = re.compile(
    r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.S
)
_FENCED = re.compile(r"(.*?)\n```json\n(.*)\n```\s*", re.S)


def hermes_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """`<tool_call>{"name": …, "arguments": …}</tool_call>`, several one after the other."""
    place = text.find("<tool_call>")
    blocks = _HERMES.findall(text)
    if not blocks or _HERMES.sub("", text[place:]).strip():
        return None
    return _parsed(text[:place], [json_call(block) for block in blocks])


def llama_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """`{"name": …, "parameters": …}` as the whole answer; several are divided by `;`."""
    rest = text.strip().removeprefix("<|python_tag|>").strip()
    if not rest.startswith("{"):
        return None
    calls: list[WrittenCall | None] = []
    while rest:
        try:
            _, end = object_fields(rest)
        except ValueError:
            end = len(rest)
        call = json_call(rest[:end])
        if call is None or not any(tool.name == call.name for tool in tools):
            return None  # An answer that merely is JSON.
        calls.append(call)
        rest = rest[end:].lstrip().removeprefix(";").lstrip()
    return _parsed("", calls)


def mistral_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """`[TOOL_CALLS][{…}, {…}]`, or `[TOOL_CALLS]name[ARGS]{…}` for each of several."""
    content, mark, rest = text.partition("[TOOL_CALLS]")
    if not mark:
        return None
    named = list(_MISTRAL_NAMED.finditer(text))
    if named:
        ends = [found.start() for found in named[1:]] + [len(text)]
        pieces = [text[m.end() : end].strip() for m, end in zip(named, ends, strict=True)]
        return _parsed(
            content, [WrittenCall(m[1], piece) for m, piece in zip(named, pieces, strict=True)]
        )
    rest = rest.strip()
    if not rest.startswith("["):
        return None
    return _parsed(content, _listed(rest[1:]))


def glm4_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """The tool's name, a new line, and its arguments: one call, alone in its answer."""
    found = _GLM4.fullmatch(text)
    if found is None or not any(tool.name == found[1] for tool in tools):
        return None
    return _parsed("", [WrittenCall(found[1], found[2].strip())])


def deepseek_calls(text: str, tools: Sequence[ToolSpec]) -> Parsed | None:
    """Calls between DeepSeek's own marks: V3 and R1 fence the arguments, V3.1 does not."""
    content, begin, rest = text.partition("<｜tool▁calls▁begin｜>")
    written = _DEEPSEEK_CALL.findall(rest)
    left = _DEEPSEEK_CALL.sub("", rest).replace("<｜tool▁calls▁end｜>", "").strip()
    if not begin or not written or left:
        return None
    calls: list[WrittenCall | None] = []
    for head, body in written:
        fenced = _FENCED.fullmatch(body)
        name, arguments = (fenced[1], fenced[2]) if fenced else (head, body)
        calls.append(WrittenCall(name.strip(), arguments.strip()) if name.strip() else None)
    return _parsed(content, calls)


def _listed(text: str) -> list[WrittenCall | None]:
    """The calls of a JSON list behind its opening bracket; what is broken is one, as it stands."""
    calls: list[WrittenCall | None] = []
    rest = text.strip()
    while rest and rest != "]":
        try:
            _, end = object_fields(rest)
        except ValueError:
            end = len(rest)
        calls.append(json_call(rest[:end].removesuffix("]") if end == len(rest) else rest[:end]))
        rest = rest[end:].lstrip()
        if rest.startswith(","):
            rest = rest[1:].lstrip()
        elif rest != "]":
            calls += [None] if rest else []
            break
    return calls


def _parsed(content: str, calls: Sequence[WrittenCall | None]) -> Parsed | None:
    """Content and calls; None where one of the calls has no name: the answer stays text."""
    named = tuple(call for call in calls if call is not None)
    if not named or len(named) < len(calls):
        return None
    return Parsed(content.rstrip(), calls=named)
