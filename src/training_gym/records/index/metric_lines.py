"""Lines of metrics as names and doubles: what columns are made of."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from training_gym.records.index.decode import as_number

ENVELOPE = ("seq", "time", "batch", "optimizer_step", "policy_version")


class MetricLine(NamedTuple):
    """One record of metrics."""

    writer: str
    attempt: int
    seq: int
    envelope: tuple[float, ...]
    """What `ENVELOPE` names; NaN where the record does not say."""
    names: tuple[str, ...]
    values: array[float]
    """As many as `names`."""


def metric_line(record: dict[str, Any]) -> MetricLine | None:
    """The same of a whole record; None: it has no values."""
    values = record.get("values")
    if not isinstance(values, dict):
        return None
    return MetricLine(
        str(record["writer"]),
        int(record["attempt"]),
        record["seq"],
        tuple(float_or_nan(record.get(name)) for name in ENVELOPE),
        tuple(values),
        doubles(values.values()),
    )


def float_or_nan(value: Any) -> float:
    """A recorded number as float; NaN for what was not recorded."""
    return math.nan if value is None else as_number(value)


def doubles(values: Iterable[Any]) -> array[float]:
    """Recorded numbers as doubles; `"NaN"` and its kin are what they say, the rest is NaN."""
    kept = values if isinstance(values, Sequence) else list(values)
    try:
        return array("d", kept)
    except (TypeError, OverflowError):
        return array("d", [as_number(value) for value in kept])
