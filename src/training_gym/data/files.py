"""Rows of jsonl, json, csv and parquet files; every error names the file and the line."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

from training_gym.data.rows import Row, as_row
from training_gym.spec.errors import DataError, did_you_mean

_LONGEST_CSV_FIELD = 2**31 - 1


def find_file(path: str, root: Path, sha256: str | None) -> tuple[Path, str]:
    """The file and its SHA-256; raises `DataError` if it is missing or not the expected one."""
    found = root / Path(path).expanduser()
    try:
        with found.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"there is no file {found}", fix=_near(found)) from None
    except OSError as error:
        raise DataError(
            f"{found} cannot be read: {error.strerror}", fix="check the path and its permissions"
        ) from None
    if sha256 is not None and actual != sha256:
        raise DataError(
            f"{found.name} has hash {actual[:12]}…, expected {sha256[:12]}…",
            fix="restore the file, or give the new hash if the change is meant",
        )
    return found, actual


def read_rows(path: Path, input_column: str) -> Generator[Row, None, None]:
    """The file's rows in order, by its suffix."""
    readers = {
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path.name} is of no known kind ({path.suffix or 'no suffix'})",
            fix="use " + ", ".join(readers),
        )
    return reader(path, input_column)


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either; check the path"
    siblings = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return did_you_mean(path.name, siblings) if siblings else f"{path.parent} is empty"


def _jsonl(path: Path, input_column: str) -> Generator[Row, None, None]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path.name}, line {number}"
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if line.strip():
                yield as_row(_parse(line.rstrip(), where), where, input_column)


def _json(path: Path, input_column: str) -> Generator[Row, None, None]:
    """A JSON array of rows, or JSON lines under another name."""
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith(b"["):
        yield from _jsonl(path, input_column)
        return
    items = _parse(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), path.name)
    for number, item in enumerate(items, start=1):
        where = f"{path.name}, row {number}"
        yield as_row(item, where, input_column)


def _parse(text: bytes, where: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where} is not UTF-8: byte {text[error.start]:#04x} at position {error.start}",
            fix="save the file as UTF-8",
        ) from None
    except json.JSONDecodeError as error:
        line = "" if error.lineno == 1 else f", line {error.lineno}"
        raise DataError(
            f"{where}{line} is not JSON: {error.msg} at column {error.colno}",
            fix="write one JSON value a line, with double quotes and no trailing commas",
        ) from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{where} is not usable JSON: {error}", fix="simplify the value") from None


def _csv(path: Path, input_column: str) -> Generator[Row, None, None]:
    # The limit is global to the csv module; reading restores what it found.
    previous = csv.field_size_limit(_LONGEST_CSV_FIELD)
    try:
        # Bytes that are not UTF-8 come through as surrogates, so that the line can be named.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            yield from _csv_rows(path, file)
    finally:
        csv.field_size_limit(previous)


def _csv_rows(path: Path, file: Any) -> Generator[Row, None, None]:
    reader = csv.reader(file, strict=True)
    line = 1
    try:
        header = next(reader, [])
        _require_utf8(header, f"{path.name}, line 1")
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"{path.name} has two columns called {twice!r}", fix="rename one of them"
            )
        line = reader.line_num + 1
        for fields in reader:
            where = f"{path.name}, line {line}"
            line = reader.line_num + 1
            if not fields:
                continue
            _require_utf8(fields, where)
            if len(fields) != len(header):
                raise DataError(
                    f"{where} has {len(fields)} fields, the header has {len(header)}",
                    fix="quote fields that hold commas, quotes or line breaks",
                )
            yield Row(dict(zip(header, fields, strict=True)), where)
    except csv.Error as error:
        raise DataError(
            f"{path.name}, line {line} is not csv: {error}",
            fix='quote fields with ", and double every " inside them',
        ) from None


def _require_utf8(fields: list[str], where: str) -> None:
    try:
        "".join(fields).encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"{where} is not UTF-8", fix="save the file as UTF-8") from None


def _parquet(path: Path, input_column: str) -> Generator[Row, None, None]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            f"reading {path.name} needs pyarrow, which is not installed",
            fix="pip install 'training-gym[data]'",
        ) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for columns in batch.to_pylist():
                    number += 1
                    yield Row(columns, f"{path.name}, row {number}")
    except (arrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path.name} is not a readable parquet file (after row {number}): "
            f"{str(error).splitlines()[0]}",
            fix="write the file again; it may be cut short",
        ) from None
