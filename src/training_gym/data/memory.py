"""Rows held in memory, and the hashed jsonl they become before they travel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

from training_gym.data.rows import TASK_COLUMN, Row, as_row
from training_gym.data.values import NotJsonError, json_value
from training_gym.data.writing import write_whole
from training_gym.spec.datasets import FileDataset, RowsDataset
from training_gym.spec.errors import DataError
from training_gym.spec.tasks import Task


def memory_rows(dataset: RowsDataset) -> Generator[Row, None, None]:
    """The rows as the file that `write_rows` makes of them would give them."""
    for number, given in enumerate(dataset.rows, start=1):
        yield _row(given, f"row {number} of the list", dataset.input_column)


def write_rows(dataset: RowsDataset, folder: Path | str) -> FileDataset:
    """Write `rows-<hash>.jsonl` into `folder`; the dataset that reads it, relative to there.

    The same rows give the same file. Raises `DataError` for a value that JSON cannot hold.
    """
    lines = [json.dumps(row.columns, sort_keys=True) for row in memory_rows(dataset)]
    data = "".join(f"{line}\n" for line in lines).encode("ascii")
    digest = hashlib.sha256(data).hexdigest()
    name = f"rows-{digest[:16]}.jsonl"
    try:
        write_whole(Path(folder) / name, data)
    except OSError as error:
        raise DataError(
            f"{Path(folder) / name} cannot be written: {error.strerror}",
            fix="free some space, or check the folder's permissions",
        ) from None
    settings = {field: getattr(dataset, field) for field in dataset.model_fields_set - {"kind"}}
    return FileDataset(**settings, path=name, sha256=digest)


def _row(given: Any, where: str, input_column: str) -> Row:
    if isinstance(given, Task):
        given = {TASK_COLUMN: given.model_dump(mode="json", exclude_defaults=True)}
    row = as_row(given, where, input_column)
    columns = {}
    for name, value in row.columns.items():
        if not isinstance(name, str):
            raise DataError(
                f"{where} has a column called {name!r}", fix="name columns with strings"
            )
        try:
            columns[name] = json_value(value)
        except NotJsonError as error:
            raise DataError(
                f"{where}: column {name!r} holds {error}",
                fix="use strings, numbers, lists and dictionaries only",
            ) from None
    return Row(columns, where)
