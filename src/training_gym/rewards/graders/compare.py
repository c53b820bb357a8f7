"""Comparing on the host: texts that a program wrote, values that a function returned."""

from __future__ import annotations

import math
from typing import Any, Literal

Comparison = Literal["lines", "exact", "tokens", "numbers"]
"""`lines`: equal but for blanks at line ends and empty lines at the end; `exact`: byte for byte;
`tokens`: equal words whatever the blanks; `numbers`: tokens, numbers within 1e-6."""


def same_output(expected: str, written: bytes, comparison: Comparison) -> bool:
    """Whether a program wrote what is expected."""
    if comparison == "exact":
        return written == expected.encode()
    try:
        text = written.decode()
    except UnicodeDecodeError:
        return False
    if comparison == "lines":
        return _lines(text) == _lines(expected)
    found, wanted = text.split(), expected.split()
    if comparison == "tokens":
        return found == wanted
    return len(found) == len(wanted) and all(map(_same_token, wanted, found))


def same_value(expected: Any, found: Any, tolerance: float) -> bool:
    """Whether plain data is equal, types included; True is not 1, tuples are lists in JSON."""
    if isinstance(expected, float) or isinstance(found, float):
        if not all(type(value) in (int, float) for value in (expected, found)):
            return False
        if expected == found or (expected != expected and found != found):
            return True
        return math.isclose(expected, found, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(expected, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(expected) == len(found)
            and all(same_value(a, b, tolerance) for a, b in zip(expected, found, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and expected.keys() == found.keys()
            and all(same_value(expected[key], found[key], tolerance) for key in expected)
        )
    return type(expected) is type(found) and bool(expected == found)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _same_token(wanted: str, found: str) -> bool:
    if wanted == found:
        return True
    try:
        a, b = float(wanted), float(found)
    except ValueError:
        return False
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
