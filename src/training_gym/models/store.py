"""Where fetched and converted models lie: a folder appears whole or not at all.

Models are made in a hidden folder beside their place and renamed into it, under a lock, so that two
processes that want the same one make it once and a killed one leaves nothing that looks finished.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import JsonValue

from training_gym.spec.errors import ModelError
from training_gym.spec.home import models_directory

_CANNOT_WRITE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}

SOURCE_FILE = "source.json"
"""Names a stored model's origin, terms and hashes; written last."""


def stored(name: str) -> Path | None:
    """The folder of a finished model, None if it is not here."""
    folder = models_directory() / name
    return folder if (folder / SOURCE_FILE).is_file() else None


def store(name: str, fill: Callable[[Path], dict[str, JsonValue]]) -> Path:
    """The folder of model `name`, made by `fill` unless it is here already.

    Args:
        name: folder name under the models directory.
        fill: writes the model's files into the folder it is given and returns what `source.json`
            shall say of their origin; the files' hashes are added.
    """
    place = models_directory() / name
    with storage_errors(place), _locked(place):
        if stored(name) is not None:
            return place
        _remove_unfinished(place)
        making = Path(tempfile.mkdtemp(prefix=f".{name}~", dir=place.parent))
        try:
            source = fill(making)
            hashes = {
                file.relative_to(making).as_posix(): file_sha256(file)
                for file in sorted(making.rglob("*"))
                if file.is_file()
            }
            text = json.dumps({"schema": 1, **source, "files": hashes}, indent=2)
            (making / SOURCE_FILE).write_text(text + "\n", encoding="utf-8")
            making.chmod(0o755)
            making.rename(place)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return place


def _remove_unfinished(place: Path) -> None:
    """Clear what a killed process left, and a folder without `source.json` made by hand."""
    for left in (*place.parent.glob(f".{place.name}~*"), place):
        shutil.rmtree(left, ignore_errors=True)


def file_sha256(file: Path) -> str:
    """Hex digest of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn what a full or read-only disk raises into a `ModelError` that names `place`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            free_mb = shutil.disk_usage(_nearest(place)).free // 10**6
            raise ModelError(
                f"no space left for {place} ({free_mb} MB free)",
                fix="free some space, or set TRAINING_GYM_HOME to a larger disk",
            ) from error
        if error.errno in _CANNOT_WRITE:
            raise ModelError(
                f"cannot write {place}: {error.strerror}",
                fix="set TRAINING_GYM_HOME to a folder you can write to",
            ) from error
        raise


def _nearest(place: Path) -> Path:
    return next(folder for folder in (place, *place.parents) if folder.exists())


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the lock beside `place`; the operating system frees it when the process dies."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows: two pulls at once do the work twice, the rename stays atomic.
        yield
        return
    with (place.parent / f".{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
