"""Grammars of whole answers: reasoning as the family marks it, then content or calls of a form.

The dialect is llguidance's Lark. JSON is written as Python and most chat templates write it, with
a space behind commas and colons and none elsewhere, so that what is sampled is what the template
says again, and nobody can go on with spaces for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from training_gym.models.parsers.call_notations import CallNotation
from training_gym.models.parsers.families import Family
from training_gym.spec.errors import FormError
from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.messages import ToolSpec

_COMPACT: JsonValue = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
}


@dataclass(frozen=True)
class Template:
    """What of a model's template and tokenizer a grammar depends on."""

    family: Family
    text: str
    special: Mapping[str, int]
    """Special tokens by their text: a grammar names them by their ids."""


def answer_grammar(
    template: Template,
    form: AnswerForm,
    *,
    after: str,
    tools: Sequence[ToolSpec] = (),
    raw: bool = False,
) -> Grammar:
    """The grammar of answers of a form; see `TextCodec.grammar`.

    Args:
        template: whose answers they are.
        form: raises `FormError` where the family cannot be held to it.
        after: the end of the prompt.
        tools: what was offered.
        raw: a text goes on.
    """
    if template.family.channels and not raw:
        raise FormError(
            f"answers of the family {template.family.name} are several messages, which are held to "
            "no form",
            fix="leave the form of the answer open",
        )
    rules = _Rules(template)
    thought = "" if raw else rules.thought(after)
    choices = []
    if form.least_calls == 0:
        choices.append(rules.content(form, divided=bool(tools) and not raw))
    if form.most_calls != 0 and tools and not raw:
        calls = rules.calls(form, tools)
        choices.append(calls)
        if form.least_calls == 0 and form.content_schema is None and rules.notation.mark:
            choices.append(rules.text_before())
    elif form.least_calls:
        raise FormError("a call is asked for and no tool is offered", fix="offer tools")
    rules.add("start", f"{thought} answer".strip())
    rules.add("answer", " | ".join(choices))
    return Grammar(lark=rules.text)


class _Rules:
    """Collects the rules of one grammar."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._rules: dict[str, str] = {}

    @property
    def text(self) -> str:
        return "".join(f"{name}: {rule}\n" for name, rule in self._rules.items())

    @property
    def notation(self) -> CallNotation:
        """How the family writes calls; raises `FormError` where that is no JSON."""
        family = self._template.family
        found = family.notation(self._template.text)
        if found is None:
            raise FormError(
                f"calls of the family {family.name} are written in a way that is held to no form"
                if family.calls
                else f"no notation of calls is known for the family {family.name}",
                fix="leave tool_choice and strict open",
            )
        return found

    def add(self, name: str, rule: str) -> str:
        """A rule by its name, which is handed back."""
        self._rules[name] = rule
        return name

    def thought(self, after: str) -> str:
        """Reasoning, free up to its end, where the prompt has opened it or the template knows it.

        Empty where there is none.
        """
        marks = self._template.family.reasoning
        if marks is None or not self._is_known(marks[0]):
            return ""
        begin, end = marks
        opened = after.rstrip().endswith(begin.rstrip())
        if not opened and after.rstrip().endswith(end):
            return ""  # it was opened and closed: there is nothing to think
        self.add("spaces", r"/\n{0,2}/")
        body = f"{self._until('thinking', end)} spaces"
        self.add("thought", body if opened else f"{self.literal(begin)} {body}")
        return "thought" if opened else "thought?"

    def content(self, form: AnswerForm, *, divided: bool) -> str:
        """The content: JSON that follows the schema, or text; `divided`: that is no call."""
        if form.content_schema is not None:
            return self.add("content", _json(json.loads(form.content_schema)))
        if not divided:
            return self.add("TEXT", "/(?s:.*)/")
        mark = self.notation.mark
        beginning = f".*{_pattern(mark)}" if mark else r"\s*(\{|[\w.-]+\n\{)"
        return self.add("TEXT", f"/(?s:.*)/ & ~/(?s:{beginning}.*)/")

    def calls(self, form: AnswerForm, tools: Sequence[ToolSpec]) -> str:
        """One call or several, of the tools that may be called."""
        self.add("rest", self._behind_mark(form, tools))
        mark = self.literal(self.notation.mark)
        return self.add("calls", f"{mark} rest".strip())

    def text_before(self) -> str:
        """Text and calls behind it: the text ends where the first mark of a call begins."""
        mark = self.notation.mark
        if mark in self._template.special:
            return "TEXT calls"
        return f"{self._until('text', mark)} rest"

    def _behind_mark(self, form: AnswerForm, tools: Sequence[ToolSpec]) -> str:
        """Calls from behind the first mark on; adds `call`, one call from behind its own."""
        notation = self.notation
        names = form.callable_tools
        called = [tool for tool in tools if names is None or tool.name in names]
        if not called:
            raise FormError(
                f"none of {', '.join(names or ())} is offered", fix="call one of the tools"
            )
        of_each = not notation.opening  # the mark begins each call, or all of them together
        before = notation.before.removeprefix(notation.mark) if of_each else notation.before
        for number, tool in enumerate(called):
            loose = tool.name in form.loose_tools
            arguments = _json({"type": "object"} if loose else _of_object(tool.parameters))
            self.add(f"arguments{number}", arguments)
            head = self.literal(before + _in_json(tool.name) + notation.middle)
            self.add(f"call{number}", f"{head} arguments{number} {self.literal(notation.behind)}")
        self.add("call", " | ".join(f"call{number}" for number in range(len(called))))
        body = "call"
        if form.most_calls is None and notation.between is not None:
            next_mark = notation.mark if of_each else ""
            body = f"call ({self.literal(notation.between + next_mark)} call)*"
        opening = self.literal(notation.opening.removeprefix(notation.mark))
        return f"{opening} {body} {self.literal(notation.closing)}".strip()

    def literal(self, text: str) -> str:
        """A text as a sequence of terminals, special tokens among them by their ids."""
        special = self._template.special
        if not special:
            return _quoted(text) if text else ""
        pattern = "|".join(re.escape(known) for known in sorted(special, key=len, reverse=True))
        pieces = [piece for piece in re.split(f"({pattern})", text) if piece]
        return " ".join(
            f"<[{special[piece]}]>" if piece in special else _quoted(piece) for piece in pieces
        )

    def _is_known(self, mark: str) -> bool:
        """Whether the template writes a mark, or the tokenizer has a token to begin it with."""
        return mark in self._template.text or any(map(mark.startswith, self._template.special))

    def _until(self, name: str, end: str) -> str:
        """Any text up to the first `end`, and `end`."""
        if end in self._template.special:  # which may be written letter by letter, too
            self.add("ANY", f"/(?s:.*)/ & ~/(?s:.*{_pattern(end)}.*)/")
            return f"ANY {self.literal(end)}"
        self.add(f"{name}[suffix={_quoted(end)}]", "/(?s:.*)/")
        return name


def _json(schema: JsonValue) -> str:
    if not isinstance(schema, dict):
        schema = {} if schema is not False else {"not": {}}
    return "%json " + json.dumps({**schema, "x-guidance": _COMPACT}, ensure_ascii=False)


def _of_object(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A tool's schema: arguments are an object, whether it says so or not."""
    return {"type": "object", **schema}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_json(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _pattern(text: str) -> str:
    """A text as a regular expression between slashes."""
    return re.sub(r"([\\/.*+?()|\[\]{}^$])", r"\\\1", text)
