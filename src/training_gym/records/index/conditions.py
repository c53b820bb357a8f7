"""A small language of conditions on a run: `wait --until "reward_mean > 0.8 and step >= 20"`.

    or      := and ("or" and)*
    and     := not ("and" not)*
    not     := "not" not | "(" or ")" | comparison
    comparison := value ("<" | "<=" | ">" | ">=" | "==" | "!=") value
    value   := number | "text" | name | mean(name, n) | max(name) | min(name)

A name is a field of the run's row (`status`, `level`, `step`, `reward`, `cost`, …) or a metric's,
such as `eval/held_out`. What does not exist yet compares as false. Nothing is ever executed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from training_gym.records.index.index import Index
from training_gym.records.index.series_values import SeriesQuery
from training_gym.spec.errors import SpecError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<text>\"[^\"]*\"|'[^']*')"
    r"|(?P<name>[A-Za-z_~][\w./@:-]*)|(?P<sign><=|>=|==|!=|<|>|\(|\)|,))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_FUNCTIONS = ("mean", "max", "min")
LONGEST = 1000
"""Characters of a condition."""
DEEPEST = 50
"""Parentheses within parentheses."""


class Facts(Protocol):
    """Where the values of names come from."""

    def value(self, name: str) -> float | str | None:
        """Of a field or the newest point of a metric; None: there is none yet."""
        ...

    def values(self, name: str) -> Sequence[float]:
        """All points of a metric, oldest first."""
        ...


Condition = Callable[[Facts], bool]
_Value = Callable[[Facts], float | str | None]


class RunFacts:
    """Facts of one run, read from an index."""

    def __init__(self, index: Index, run_id: str) -> None:
        """As the run stands now."""
        self._index, self._run_id = index, run_id
        self._row = index.overview(run_id).row.model_dump()

    def value(self, name: str) -> float | str | None:
        """See `Facts`."""
        if name in self._row and isinstance(self._row[name], int | float | str):
            return self._row[name]  # type: ignore[no-any-return]
        found = self.values(name)
        return found[-1] if found else None

    def values(self, name: str) -> Sequence[float]:
        """See `Facts`; long curves are reduced to their extremes."""
        query = SeriesQuery(names=(name,), max_points=100_000)
        drawn = self._index.series((self._run_id,), query)
        return drawn[0].mean if drawn else ()


def parse(text: str) -> Condition:
    """The condition a text says; raises `SpecError` where it says none."""
    if len(text) > LONGEST:
        raise SpecError(f"a condition of {len(text)} characters", fix=f"at most {LONGEST} are read")
    parser = _Parser(text, _tokens(text))
    condition = parser.either()
    parser.end()
    return condition


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise SpecError(
                f"{text!r}: {text[at:].strip()[:20]!r} is not understood",
                fix='write it like: reward_mean > 0.8 and status == "running"',
            )
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


@dataclass
class _Parser:
    """Recursive descent, one method for each rule of the grammar."""

    text: str
    tokens: list[tuple[str, str]]
    at: int = 0
    depth: int = 0

    def either(self) -> Condition:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda facts: any(part(facts) for part in parts)

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self._error(f"{self.tokens[self.at][1]!r} was not expected")

    def _both(self) -> Condition:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else lambda facts: all(part(facts) for part in parts)

    def _not(self) -> Condition:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._error("it is nested too deeply")
        try:
            if self._take("not"):
                inner = self._not()
                return lambda facts: not inner(facts)
            if self._take("("):
                inner = self.either()
                self._need(")")
                return inner
            return self._comparison()
        finally:
            self.depth -= 1

    def _comparison(self) -> Condition:
        left = self._value()
        sign = self.tokens[self.at][1] if self.at < len(self.tokens) else "its end"
        compare = _COMPARE.get(sign)
        if compare is None:
            raise self._error(f"{sign!r} stands where a comparison should")
        self.at += 1
        right = self._value()

        def holds(facts: Facts) -> bool:
            one, other = left(facts), right(facts)
            if one is None or other is None or isinstance(one, str) != isinstance(other, str):
                return False
            return compare(one, other)

        return holds

    def _value(self) -> _Value:
        if self.at >= len(self.tokens):
            raise self._error("it ends where a value should stand")
        kind, word = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            number = float(word)
            return lambda _: number
        if kind == "text":
            return lambda _: word[1:-1]
        if kind != "name" or word in ("and", "or", "not"):
            raise self._error(f"{word!r} stands where a value should")
        if word in _FUNCTIONS and self._take("("):
            return self._function(word)
        return lambda facts: facts.value(word)

    def _function(self, function: str) -> _Value:
        kind, name = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind != "name":
            raise self._error(f"{function}() takes a metric's name")
        self.at += 1
        count = None
        if self._take(","):
            kind, word = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
            if kind != "number" or float(word) < 1:
                raise self._error(f"{function}({name}, …) takes a number of points")
            self.at += 1
            count = int(float(word))
        self._need(")")

        def reduced(facts: Facts) -> float | None:
            values = facts.values(name)
            values = values if count is None else values[-count:]
            if not values or (count is not None and len(values) < count):
                return None
            if function == "mean":
                return sum(values) / len(values)
            return max(values) if function == "max" else min(values)

        return reduced

    def _take(self, word: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][1] == word:
            self.at += 1
            return True
        return False

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._error(f"{word!r} is missing")

    def _error(self, what: str) -> SpecError:
        return SpecError(
            f"{self.text!r}: {what}", fix="write it like: reward_mean > 0.8 and step >= 20"
        )
