"""How tools are offered and called: as the model's chat template does it, or in plain text.

`native` hands the tools to the policy, whose template and parser know the family's own words.
`text` is for models that were never taught any: the tools stand in the system message, a call is
`<tool_call>{"name": …, "arguments": {…}}</tool_call>` in the answer, and results come back as a
user's message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

from training_gym.environments.opening import with_instructions
from training_gym.spec.environment import Policy
from training_gym.spec.messages import Message, ToolCall, ToolSpec, user

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.S)

_HOW = """\
You may call tools. To call one, write <tool_call>{"name": …, "arguments": {…}}</tool_call> and wait
for its result. The tools are:
"""


class Dialect(Protocol):
    """A way to offer tools and to read calls."""

    def begin(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
        """The conversation with whatever the model must be told of the tools."""
        ...

    async def ask(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[Message, Sequence[ToolCall]]:
        """The policy's answer as it shall stand in the conversation, and the calls in it."""
        ...

    def results(self, answers: Sequence[Message]) -> list[Message]:
        """The answers to the calls, as the model shall read them."""
        ...


class NativeTools:
    """Implements `Dialect` with the template's own tools."""

    def begin(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
        """See `Dialect`."""
        return list(messages)

    async def ask(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[Message, Sequence[ToolCall]]:
        """See `Dialect`."""
        reply = await policy.chat(messages, tools=tools)
        return reply, reply.tool_calls

    def results(self, answers: Sequence[Message]) -> list[Message]:
        """See `Dialect`."""
        return list(answers)


class TextTools:
    """Implements `Dialect` in plain text."""

    def begin(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
        """See `Dialect`."""
        listed = "\n".join(map(described, tools))
        return with_instructions(messages, f"{_HOW}{listed}")

    async def ask(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[Message, Sequence[ToolCall]]:
        """See `Dialect`."""
        reply = await policy.chat(messages)
        return reply, calls_in(reply.text)

    def results(self, answers: Sequence[Message]) -> list[Message]:
        """See `Dialect`."""
        return [user("\n".join(f"<tool_result>{a.text}</tool_result>" for a in answers))]


def described(tool: ToolSpec) -> str:
    """A tool in few words: `add(a: integer, b: integer = 1): Add.`, then what is said of each."""
    properties: Any = tool.parameters.get("properties", {})
    required: Any = tool.parameters.get("required", [])
    given = []
    for name, schema in properties.items():
        default = "" if name in required else f" = {json.dumps(schema.get('default'))}"
        given.append(f"{name}: {_kind(schema)}{default}")
    lines = [f"{tool.name}({', '.join(given)}): {tool.description}".rstrip(": ")]
    lines += [
        f"  {name}: {schema['description']}"
        for name, schema in properties.items()
        if "description" in schema
    ]
    if "$defs" in tool.parameters:
        lines.append(f"  where {json.dumps(tool.parameters['$defs'])}")
    return "\n".join(lines)


def _kind(schema: Any) -> str:
    """A plain type by its name, everything else as its schema."""
    rest = {key: value for key, value in schema.items() if key not in ("default", "description")}
    return str(rest["type"]) if set(rest) == {"type"} else json.dumps(rest)


def calls_in(text: str) -> list[ToolCall]:
    """The calls written in a text, in order; what cannot be read keeps its words as arguments."""
    return [_call(number, inner) for number, inner in enumerate(_CALL.findall(text), 1)]


def _call(number: int, inner: str) -> ToolCall:
    try:
        found = json.loads(inner)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        named = re.search(r'"name"\s*:\s*"([^"]*)"', inner)
        return ToolCall(id=f"call_{number}", name=named.group(1) if named else "", arguments=inner)
    given = found.get("arguments", {})
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ToolCall(id=f"call_{number}", name=found["name"], arguments=arguments)
