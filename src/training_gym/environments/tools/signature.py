"""From a typed Python function to what a model is told of it: a name, words, a JSON schema."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from training_gym.spec.errors import SpecError
from training_gym.spec.messages import ToolSpec

SUPPLIED = ("ctx", "state", "sandbox")
"""Parameters that the environment fills in: the episode's context, dictionary and sandbox."""

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ENTRY = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


def arguments_model(function: Callable[..., Any]) -> type[BaseModel]:
    """A closed model of the function's arguments; raises `SpecError` for what has no schema."""
    _, told = docstring_parts(function)
    fields: dict[str, Any] = {}
    hints = _hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in SUPPLIED:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SpecError(
                f"tool {function.__name__} takes *{name}, which no schema can describe",
                fix="name its parameters one by one",
            )
        if name not in hints:
            raise SpecError(
                f"parameter {name!r} of tool {function.__name__} has no type",
                fix=f"annotate it, such as {name}: str",
            )
        required = parameter.default is parameter.empty
        default = ... if required else parameter.default
        fields[name] = (hints[name], Field(default, description=told.get(name)))
    try:
        return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    except Exception as error:  # boundary: pydantic meets types that only the user knows
        raise SpecError(
            f"tool {function.__name__} takes what JSON cannot hold: {error}",
            fix="use numbers, strings, lists, dictionaries, enums or pydantic models",
        ) from error


def spec_of(function: Callable[..., Any], arguments: type[BaseModel]) -> ToolSpec:
    """The tool as a model is offered it."""
    words, _ = docstring_parts(function)
    schema = _without_titles(arguments.model_json_schema())
    schema.pop("description", None)
    return ToolSpec(name=function.__name__, description=words, parameters=schema)


def docstring_parts(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The words before the first section of a google-style docstring, and those on arguments."""
    text = inspect.getdoc(function) or ""
    words: list[str] = []
    told: dict[str, str] = {}
    section, entry, indent = "", "", 0
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, entry = heading.group(1), ""
            continue
        if not section:
            words.append(line)
        if section not in ("Args", "Arguments", "Parameters") or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        found = _ENTRY.match(line.strip())
        if found and (not entry or depth <= indent):
            entry, indent = found.group(1).lstrip("*"), depth
            told[entry] = found.group(2)
        elif entry:
            told[entry] = f"{told[entry]} {line.strip()}".strip()
    return " ".join(" ".join(words).split()), told


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise SpecError(
            f"the types of tool {function.__name__} cannot be read: {error}",
            fix="import the names its annotations use at the top of its module",
        ) from error


def _without_titles(schema: Any) -> Any:
    """The schema without pydantic's titles, which repeat the names."""
    if isinstance(schema, dict):
        return {
            key: _named(value) if key in ("properties", "$defs") else _without_titles(value)
            for key, value in schema.items()
            if key != "title"
        }
    return [_without_titles(item) for item in schema] if isinstance(schema, list) else schema


def _named(entries: dict[str, Any]) -> dict[str, Any]:
    """Schemas by name, among which `title` may be one."""
    return {name: _without_titles(value) for name, value in entries.items()}
