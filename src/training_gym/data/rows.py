"""A row: its columns, and where it came from, for error messages."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from training_gym.spec.errors import DataError
from training_gym.spec.tasks import Task

TASK_COLUMN = "$task"
"""A row with this column alone is a complete `Task`, as `write_rows` keeps one."""


class Row(NamedTuple):
    """One row as read."""

    columns: dict[str, Any]
    where: str
    """Such as `topics.jsonl, line 12`."""


class Candidate(NamedTuple):
    """A row turned into a task, before duplicates are dropped."""

    task: Task
    where: str
    is_empty: bool = False
    """Whether the row had no prompt."""
    left_out: tuple[str, ...] = ()
    """Columns that JSON cannot hold."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where tasks come from: a hash of what will be read, and the reading."""

    fingerprint: str | None
    """Changes whenever the tasks read would; None: not known, so never cached."""
    candidates: Callable[[], Generator[Candidate, None, None]]
    """Starts reading; closing the generator closes what it has open."""


def as_row(value: Any, where: str, input_column: str) -> Row:
    """A row from a JSON value: an object, or a string that is the prompt."""
    if isinstance(value, str):
        return Row({input_column: value}, where)
    if isinstance(value, dict):
        return Row(value, where)
    raise DataError(
        f"{where} is a {type(value).__name__}, not a row: {value!r:.60}",
        fix=f'write each row as {{"{input_column}": …}} or as a string',
    )
