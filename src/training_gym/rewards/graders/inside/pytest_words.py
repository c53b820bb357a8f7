"""The words of pytest that test files use most, where pytest itself is not installed."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

CASES = "__cases__"
FIXTURE = "__fixture__"


class Skipped(Exception):
    """A test that asks to be left out."""


class _Raises:
    def __init__(self, kinds: Any, match: str | None) -> None:
        self._kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        self._match = match
        self.value: BaseException | None = None

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            raise AssertionError(f"did not raise {self._kinds}")
        if not isinstance(error, self._kinds):
            return False
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError(f"{str(error)!r} does not match {self._match!r}")
        self.value = error
        return True


class _Approx:
    def __init__(self, expected: Any, rel: float | None, abs_: float | None) -> None:
        self._expected = expected
        self._rel = 1e-6 if rel is None else rel
        self._abs = 1e-12 if abs_ is None else abs_

    def __eq__(self, other: object) -> bool:
        return self._near(self._expected, other)

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"

    __hash__ = None  # type: ignore[assignment]

    def _near(self, expected: Any, other: Any) -> bool:
        if isinstance(expected, dict):
            return (
                type(other) is dict
                and all(
                    key in other and self._near(value, other[key])
                    for key, value in expected.items()
                )
                and len(expected) == len(other)
            )
        if isinstance(expected, list | tuple):
            return (
                type(other) in (list, tuple)
                and len(expected) == len(other)
                and all(map(self._near, expected, other))
            )
        if type(other) not in (int, float, complex) or not isinstance(expected, int | float):
            return bool(expected == other)
        if math.isinf(expected) or math.isnan(expected):
            return bool(expected == other)
        return bool(abs(expected - other) <= max(self._abs, self._rel * abs(expected)))


class _Mark:
    def parametrize(self, names: str | Sequence[str], values: Sequence[Any], **_: Any) -> Any:
        """Run the test once for each of the values."""
        listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else names

        def mark(test: Any) -> Any:
            before = getattr(test, CASES, [{}])
            rows = [row if len(listed) > 1 else (row,) for row in values]
            cases = [
                {**case, **dict(zip(listed, row, strict=True))} for case in before for row in rows
            ]
            setattr(test, CASES, cases)
            return test

        return mark

    def skip(self, test: Any = None, **_: Any) -> Any:
        """Leave the test out."""

        def mark(test: Any) -> Any:
            test.__unittest_skip__ = True
            return test

        return mark if test is None or isinstance(test, str) else mark(test)

    def __getattr__(self, name: str) -> Any:
        def mark(*given: Any, **_: Any) -> Any:
            return given[0] if len(given) == 1 and callable(given[0]) else (lambda test: test)

        return mark


def _fixture(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, FIXTURE, True)
        return function

    return mark if function is None else mark(function)


def _fail(reason: str = "") -> None:
    raise AssertionError(reason)


def _skip(reason: str = "") -> None:
    raise Skipped(reason)


def words() -> types.ModuleType:
    """A module called pytest."""
    module = types.ModuleType("pytest")
    module.__dict__.update(
        raises=lambda kinds, match=None: _Raises(kinds, match),
        approx=lambda expected, rel=None, abs=None: _Approx(expected, rel, abs),
        mark=_Mark(),
        fixture=_fixture,
        fail=_fail,
        skip=_skip,
    )
    return module
