"""Requests for an answer of a certain form: schemas, and which tools are to be called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from training_gym.rollouts.gateway.asked import Body
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.spec.forms import AnswerForm

ANY_OBJECT = '{"type":"object"}'


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]

    @property
    def wanted(self) -> str | None:
        """The schema to follow; None: any text."""
        return None


class ObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]

    @property
    def wanted(self) -> str | None:
        """The schema to follow; None: any text."""
        return ANY_OBJECT


class SchemaFormat(Body):
    """JSON that follows a schema: as Responses and Anthropic write it."""

    type: Literal["json_schema"] = "json_schema"
    shape: dict[str, JsonValue] = Field(alias="schema")
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    """An answer follows the schema in either case."""

    @property
    def wanted(self) -> str | None:
        """The schema to follow; None: any text."""
        return json.dumps(self.shape, ensure_ascii=False)


class NamedFormat(Body):
    """The same as Chat Completions writes it."""

    type: Literal["json_schema"]
    json_schema: SchemaFormat

    @property
    def wanted(self) -> str | None:
        """The schema to follow; None: any text."""
        return self.json_schema.wanted


@dataclass(frozen=True)
class Choice:
    """Whether tools are to be called, in no dialect."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    """The one tool that is to be called."""
    parallel: bool = True


@dataclass(frozen=True)
class Names:
    """What a dialect calls the parameters that ask for a form."""

    schema: str
    choice: str = "tool_choice"
    parallel: str = "parallel_tool_calls"
    strict: str = "tools.strict"


def answer_form(
    names: Names, *, schema: str | None, choice: Choice, offered: Mapping[str, bool]
) -> tuple[AnswerForm | None, str]:
    """The form that is asked for, and the parameter that asks first; None where none does.

    Args:
        names: of the parameters.
        schema: of the content, as JSON.
        choice: which tools are to be called; raises `Refused` for what is not offered.
        offered: the tools' names, and whether their arguments are to follow their schemas. A tool
            that has to be called is held to its schema in any case.
    """
    _check(names, choice, tuple(offered))
    strict = bool(offered) and any(offered.values())
    asking: Sequence[tuple[bool, str]] = (
        (schema is not None, names.schema),
        (choice.mode != "auto" and bool(offered), names.choice),
        (not choice.parallel and bool(offered), names.parallel),
        (strict, names.strict),
    )
    param = next((name for asks, name in asking if asks), "")
    if not param:
        return None, ""
    most: Literal[0, 1] | None = None if choice.parallel else 1
    free = choice.mode == "auto"
    form = AnswerForm(
        content_schema=schema,
        least_calls=1 if choice.mode == "required" else 0,
        most_calls=0 if choice.mode == "none" else most,
        callable_tools=None if choice.name is None else (choice.name,),
        loose_tools=tuple(name for name, held in offered.items() if free and not held),
    )
    return form, param


def _check(names: Names, choice: Choice, offered: Sequence[str]) -> None:
    if choice.mode == "required" and not offered:
        raise Refused(
            "a tool is to be called and none is offered", fix="send tools", param=names.choice
        )
    if choice.name is not None and choice.name not in offered:
        raise Refused(
            f"{choice.name[:60]!r} is to be called, which is not offered",
            fix=f"choose one of {', '.join(offered)}",
            param=names.choice,
        )
