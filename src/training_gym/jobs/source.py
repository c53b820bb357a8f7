"""The user's source as one archive: the same files give the same bytes and the same hash.

What belongs in it is decided by whoever launches; here it is packed and unpacked, safely.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from training_gym.records.documents import storage_error
from training_gym.spec.errors import SourceError

_MARKER = ".training-gym-source"
"""In an unpacked folder: the hash of the archive it came from."""


def pack(files: Mapping[str, Path | bytes]) -> tuple[bytes, str]:
    """A deterministic `tar.gz` of path to content or file, and its SHA-256.

    Paths are relative, with forward slashes. Raises `SourceError`.
    """
    buffer = io.BytesIO()
    # A fixed level and time: the bytes depend on the files alone.
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            content, mode = _read(files[name])
            member = tarfile.TarInfo(_checked(name))
            member.size, member.mode, member.mtime = len(content), mode, 0
            archive.addfile(member, io.BytesIO(content))
    data = buffer.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def unpack(archive: Path | bytes, folder: Path, sha256: str) -> None:
    """Make `folder` hold exactly the archive's files, in one step.

    A folder that came from the same archive stays as it is, with what a job has written there.
    Raises `SourceError` if the hash is another, or if the archive holds anything but files below
    the folder.
    """
    marker = folder / _MARKER
    if marker.is_file() and marker.read_text() == sha256:
        return
    data = archive if isinstance(archive, bytes) else _read(archive)[0]
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise SourceError(
            f"the source archive has hash {found[:12]}…, the job expects {sha256[:12]}…",
            fix="launch again; the archive was damaged or replaced on its way",
        )
    draft = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}.draft")
    try:
        _extract(data, draft)
        (draft / _MARKER).write_text(sha256)
        if folder.exists():
            old = draft.with_suffix(".old")
            os.rename(folder, old)
            shutil.rmtree(old, ignore_errors=True)
        os.rename(draft, folder)
    except OSError as error:
        reason = storage_error(error, folder)
        raise SourceError(reason.message, fix=reason.fix) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _extract(data: bytes, folder: Path) -> None:
    folder.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                name = _checked(member.name)
                file = archive.extractfile(member) if member.isreg() else None
                if file is None:
                    raise SourceError(
                        f"the source archive holds {name!r}, which is not a plain file",
                        fix="pack files only: no links, folders or devices",
                    )
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read())
                target.chmod(0o755 if member.mode & 0o100 else 0o644)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise SourceError(
            f"the source archive cannot be read: {error}", fix="launch again"
        ) from error


def _read(source: Path | bytes) -> tuple[bytes, int]:
    """Content and mode; only whether a file is executable travels."""
    if isinstance(source, bytes):
        return source, 0o644
    try:
        executable = source.stat().st_mode & 0o100
        return source.read_bytes(), 0o755 if executable else 0o644
    except OSError as error:
        raise SourceError(
            f"cannot read {source}: {error.strerror}",
            fix="check the path in source_include and its permissions",
        ) from error


def _checked(name: str) -> str:
    """The name, if it stays below the folder it is unpacked into."""
    path = PurePosixPath(name)
    odd = path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name
    if odd or not path.parts or path.parts[0] == _MARKER:
        raise SourceError(
            f"{name!r} is not a path below the source folder",
            fix="name files relative to the folder of the defining file",
        )
    return str(path)
