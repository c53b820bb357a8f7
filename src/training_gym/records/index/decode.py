"""Lines of segments as plain data: orjson where it is installed, else the standard library.

Both give the same; orjson is two to four times as fast. Bytes that are no UTF-8 and half surrogate
pairs become replacement characters, so that whatever is read can be sent on as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from training_gym.records.run_directory import SCHEMA_VERSION
from training_gym.spec.errors import RecordsError

_loads: Callable[[bytes], Any] = (
    import_module("orjson").loads if find_spec("orjson") else json.loads
)
_dumps: Callable[[Any], bytes] | None = (
    import_module("orjson").dumps if find_spec("orjson") else None
)
_ENVELOPE = frozenset({"writer", "attempt", "seq", "time"})
"""Without these a line is damaged."""
_HALF_A_PAIR = (b"\\ud", b"\\uD", b"\xed")
"""With what half a surrogate pair begins, escaped or not: else no character needs a look."""
NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""What strings in the place of numbers stand for."""


def record_of(line: bytes) -> dict[str, Any] | None:
    """The record a line holds; None: it is damaged. Raises `RecordsError` for a newer schema."""
    try:
        record = _loads(line)
    except ValueError:
        record = _standard(line)
    else:
        if _loads is json.loads and b"\\ud" in line.lower():
            record = whole_characters(record)  # half a pair, which orjson would have refused
    if not isinstance(record, dict):
        return None
    schema = record.get("schema")
    if not isinstance(schema, int) or not record.keys() >= _ENVELOPE:
        return None
    if schema > SCHEMA_VERSION:
        raise RecordsError(
            f"records of schema {schema}; this version reads up to {SCHEMA_VERSION}",
            fix="upgrade: pip install --upgrade training-gym",
        )
    return record


def compact(value: dict[str, Any]) -> str:
    """JSON of plain data as `record_of` gave it, to be read again by `json.loads`."""
    if _dumps is not None:
        try:
            text = _dumps(value)
        except TypeError:  # numbers beyond 64 bits
            return json.dumps(value)
        if b"null" not in text or not _has_infinity(value):  # which it writes as null
            return text.decode()
    return json.dumps(value)


def _has_infinity(value: Any) -> bool:
    if isinstance(value, float):
        return math.isinf(value)
    if isinstance(value, dict):
        return any(map(_has_infinity, value.values()))
    return isinstance(value, list) and any(map(_has_infinity, value))


def as_number(value: Any) -> float:
    """A recorded number as float; what is none becomes NaN."""
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return NUMBERS.get(value, float("nan")) if isinstance(value, str) else float("nan")


def number_or_none(value: Any) -> float | None:
    """The same, but None for what was not recorded."""
    return None if value is None else as_number(value)


def _standard(line: bytes) -> Any:
    try:
        return whole_characters(json.loads(line.decode(errors="replace")))
    except (ValueError, RecursionError):
        return None


def whole_json(text: bytes) -> Any:
    """What a JSON text says, with replacement characters for half surrogate pairs."""
    value = json.loads(text)
    return whole_characters(value) if any(mark in text for mark in _HALF_A_PAIR) else value


def whole_characters(value: Any) -> Any:
    """Plain data whose half surrogate pairs are replacement characters."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {whole_characters(key): whole_characters(item) for key, item in value.items()}
    return value
