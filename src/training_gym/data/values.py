"""Column values as JSON: what Parquet, Arrow and Python programs hold beyond it."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from typing import Any

from pydantic import BaseModel, JsonValue


class NotJsonError(TypeError):
    """The value has no JSON form; says which type it has."""


def json_value(value: Any) -> JsonValue:
    """The JSON form of a column's value; raises `NotJsonError`.

    NaN and infinities become null, as Parquet files written by pandas mean them; dates become
    ISO text, decimals their exact text, numpy values Python's own.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise NotJsonError("a dictionary whose keys are not strings")
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, BaseModel):
        return json_value(value.model_dump(mode="json", exclude_defaults=True))
    if hasattr(value, "tolist"):
        plain = value.tolist()
        if type(plain) is not type(value):
            return json_value(plain)
    raise NotJsonError(f"a value of type {type(value).__name__}")
