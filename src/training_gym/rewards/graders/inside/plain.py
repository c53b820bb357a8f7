"""Plain data across a boundary: exact builtin types, never an object with code of its own.

A subclass of `int` or `list` is not plain: what it would answer to `==` is not for its author to
say. JSON carries what it can; the rest is tagged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

TAG = "$"
LIMIT = 2_000_000
"""Items in one value, so that a value cannot exhaust whoever reads it."""


class NotPlain(Exception):
    """The value is not data; says what it is."""


def encode(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """JSON of a value; `other` encodes what is not plain, else `NotPlain` is raised."""
    budget = [LIMIT]

    def visit(value: Any, depth: int) -> Any:
        budget[0] -= 1
        if budget[0] < 0 or depth > 200:
            raise NotPlain("a value too large or too deep")
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(2**53) < value < 2**53 else {TAG: "int", "v": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}
        if kind is complex:
            return {TAG: "complex", "v": [repr(value.real), repr(value.imag)]}
        if kind is bytes or kind is bytearray:
            return {TAG: kind.__name__, "v": bytes(value).hex()}
        if kind is list:
            return [visit(item, depth + 1) for item in value]
        if kind is tuple or kind is set or kind is frozenset:
            return {TAG: kind.__name__, "v": [visit(item, depth + 1) for item in list(value)]}
        if kind is dict:
            pairs = list(value.items())
            if all(type(key) is str for key, _ in pairs) and TAG not in value:
                return {key: visit(item, depth + 1) for key, item in pairs}
            return {
                TAG: "dict",
                "v": [[visit(key, depth + 1), visit(item, depth + 1)] for key, item in pairs],
            }
        if other is not None:
            return other(value)
        raise NotPlain(f"a {kind.__module__}.{kind.__qualname__}")

    return visit(value, 0)


def decode(data: Any, other: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The value; raises `NotPlain` for what `encode` does not write."""
    if isinstance(data, list):
        return [decode(item, other) for item in data]
    if not isinstance(data, dict):
        return data
    if TAG not in data:
        return {key: decode(item, other) for key, item in data.items()}
    kind: Any = data[TAG]
    value: Any = data.get("v")
    try:
        if kind == "int":
            return int(value, 16)
        if kind == "float":
            return float(value)
        if kind == "complex":
            return complex(float(value[0]), float(value[1]))
        if kind in ("bytes", "bytearray"):
            return bytearray.fromhex(value) if kind == "bytearray" else bytes.fromhex(value)
        if kind in ("tuple", "set", "frozenset"):
            items = [decode(item, other) for item in value]
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)
        if kind == "dict":
            return {decode(key, other): decode(item, other) for key, item in value}
    except (TypeError, ValueError, IndexError) as error:
        raise NotPlain(f"damaged data: {error}") from None
    if other is not None:
        return other(data)
    raise NotPlain(f"data of an unknown kind {kind!r}")
