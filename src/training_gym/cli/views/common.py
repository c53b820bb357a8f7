"""What the views share: the index, ranges, moments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

    from training_gym.records.index import Index, Range

_RANGE = re.compile(r"(-?[\d.]+(?:e-?\d+)?)?\.\.(-?[\d.]+(?:e-?\d+)?)?", re.IGNORECASE)


def open_index() -> Index:
    """The index of this home."""
    from training_gym.records.index import Index

    return Index.default()


def run_id_of(prefix: str) -> str:
    """The id of the run that begins with `prefix`; raises `RecordsError`."""
    from training_gym.cli.runs.lookup import find_run

    return find_run(prefix).id


def range_of(text: str | None, option: str) -> Range | None:
    """`3`, `2..5`, `0.5..` or `..1` as a range."""
    from training_gym.cli.failures import UsageError
    from training_gym.records.index import Range

    if text is None:
        return None
    try:
        parts = _RANGE.fullmatch(text.strip())
        ends = (text, text) if parts is None else parts.groups()
        low, high = (None if end is None else float(end) for end in ends)
    except ValueError:
        low, high = math.nan, None
    if low is not None and (math.isnan(low) or (high is not None and not low <= high)):
        raise UsageError(f"{option} {text!r} is not a range", fix="write 3, 2..5, 0.5.. or ..1")
    return Range(low=low, high=high)


def require_metrics(patterns: Iterable[str], known: Sequence[str]) -> None:
    """Raise `UsageError` for a name or pattern that none of the known metrics has."""
    from training_gym.cli.failures import UsageError
    from training_gym.spec.errors import did_you_mean

    for pattern in patterns:
        if not any(name == pattern or fnmatchcase(name, pattern) for name in known):
            raise UsageError(f"no metric is called {pattern!r}", fix=did_you_mean(pattern, known))


def emit_value(schema: str, value: BaseModel) -> None:
    """One value of the index as one line of JSON."""
    from training_gym.cli import output

    output.emit(schema, **value.model_dump(mode="json"))


def moment(seconds: float | None) -> str:
    """A time for people, in UTC."""
    if not seconds:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
