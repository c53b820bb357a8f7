"""JSON on disk: whole documents written temp-then-rename, and the bytes of single lines.

A reader never sees half a document. Numbers that JSON cannot hold are the strings `"NaN"`,
`"Infinity"` and `"-Infinity"`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from training_gym.spec.errors import RecordsError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_PERMISSION = (errno.EROFS, errno.EACCES, errno.EPERM)


def write_document(path: Path, document: Mapping[str, Any] | BaseModel) -> None:
    """Replace the document at `path`, durably; raises `RecordsError` where it cannot be written."""
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_durably(temporary, _pretty(document))
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def create_document(path: Path, document: Mapping[str, Any] | BaseModel) -> bool:
    """Write the document unless there is one already; False: there was, and it stays as it is.

    Of several processes that create one document, exactly one gets True.
    """
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_durably(temporary, _pretty(document))
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (*_NO_SPACE, errno.EROFS):
                raise
            return _create_without_links(path, _pretty(document))
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True


def read_document(path: Path) -> dict[str, Any]:
    """The document at `path`; raises `RecordsError` where there is none or it is damaged."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RecordsError(f"there is no {path}", fix="check the run's id and folder") from None
    except OSError as error:
        raise storage_error(error, path) from error
    except ValueError as error:
        raise RecordsError(
            f"{path} is not JSON: {error}", fix="restore it from a copy, or start a new run"
        ) from None
    if not isinstance(document, dict):
        raise RecordsError(
            f"{path} holds a {type(document).__name__}, not an object",
            fix="restore it from a copy, or start a new run",
        )
    return document


def read_document_if_any(path: Path) -> dict[str, Any] | None:
    """The document at `path`, or None where there is none."""
    return read_document(path) if path.exists() else None


def encode(value: Any) -> str:
    """Compact JSON of plain data, pydantic values, paths and numbers of array libraries."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(value))


def to_bytes(text: str) -> bytes:
    """UTF-8 of JSON text; half surrogate pairs, which UTF-8 cannot hold, become escapes."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join(
            f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in text
        ).encode()


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable, where its file system can."""
    with contextlib.suppress(OSError):  # some network file systems refuse to sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def storage_error(error: OSError, path: Path) -> RecordsError:
    """An operating system's refusal as our two lines."""
    what = f"cannot use {path}: {error.strerror or error}"
    if error.errno in _NO_SPACE:
        return RecordsError(what, fix="free some space on that disk; what was written is kept")
    if error.errno in _NO_PERMISSION:
        return RecordsError(
            what, fix="make it writable, or set TRAINING_GYM_HOME to a folder that is"
        )
    return RecordsError(what, fix="check the disk and the folder's path")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and torch
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r:.80}")


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, str | int) or value is None:
        return value
    return _finite(_plain(value))


def _pretty(document: Mapping[str, Any] | BaseModel) -> bytes:
    compact = encode(document)
    return to_bytes(json.dumps(json.loads(compact), indent=2, ensure_ascii=False) + "\n")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def _write_durably(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _create_without_links(path: Path, data: bytes) -> bool:
    """For file systems without hard links: exclusive, though not in one piece."""
    try:
        _write_durably(path, data)
    except FileExistsError:
        return False
    return True
