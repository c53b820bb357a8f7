"""Checkpoints: `checkpoints/<optimizer step>/`, which exist once `checkpoint.json` does.

Files are written into a hidden folder, hashed and synced; `checkpoint.json` is written last and the
folder is renamed into place. Weights lie in Hugging Face layout, what a resume needs beside them
in `resume/`. A checkpoint's own hash covers the weights, not `resume/`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from training_gym.records.documents import (
    read_document,
    storage_error,
    sync_folder,
    write_document,
)
from training_gym.records.run_directory import (
    SCHEMA_VERSION,
    RunDirectory,
    require_known_schema,
)
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import CheckpointError, GymError
from training_gym.spec.settings import Settings

_CHUNK_BYTES = 1 << 20


class Position(Settings):
    """A point in one writer's records."""

    writer: str
    attempt: int
    seq: int
    """Of the last record before the point; -1: none."""


class CheckpointInfo(Settings):
    """What the engine says of a checkpoint it writes."""

    kind: Literal["full", "adapter"] = "full"
    base_sha256: str | None = None
    """Hash of the weights an adapter belongs to."""
    counters: Counters = Field(default_factory=Counters)
    position: Position | None = None
    """Where the engine's recorder stood (`Recorder.position()`)."""
    extras: dict[str, JsonValue] = {}


class CheckpointFile(Settings):
    """One file of a checkpoint."""

    path: str
    """Below the checkpoint's folder, with forward slashes."""
    size: int
    sha256: str


class Checkpoint(CheckpointInfo):
    """A checkpoint on disk: the content of `checkpoint.json`."""

    schema_version: int = SCHEMA_VERSION
    step: int
    """Optimizer steps before it."""
    created_at: float
    """Seconds since 1970."""
    sha256: str
    """Over names and hashes of all files outside `resume/`."""
    files: tuple[CheckpointFile, ...]
    folder: Path = Field(Path(), exclude=True)
    """Where it lies."""

    @property
    def resume(self) -> Path:
        """Optimizer, counters, random state, data cursor."""
        return self.folder / "resume"


def write_checkpoint(
    run: RunDirectory,
    step: int,
    fill: Callable[[Path], None],
    info: CheckpointInfo,
    keep: int | None = None,
) -> Checkpoint:
    """Write a checkpoint with what `fill(folder)` puts into an empty folder.

    Afterwards all but the newest `keep` up to this step are removed (None: none are). Whatever
    fails, checkpoints that exist stay as they are. Raises `CheckpointError`.
    """
    target = run.checkpoints / str(step)
    draft = run.checkpoints / f".{step}-{uuid.uuid4().hex[:8]}.draft"
    try:
        _remove_leftovers(run.checkpoints)
        draft.mkdir(parents=True)
        fill(draft)
        files = tuple(_describe(path, draft) for path in _files_in(draft))
        if not files:
            raise CheckpointError(
                f"the checkpoint of step {step} holds no file", fix="write at least the weights"
            )
        checkpoint = Checkpoint(
            **dict(info), step=step, created_at=time.time(), sha256=_hash_of(files), files=files
        )
        write_document(draft / "checkpoint.json", checkpoint)
        _put_in_place(draft, target)
    except OSError as error:
        reason = storage_error(error, target)
        raise CheckpointError(reason.message, fix=reason.fix) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if keep is not None:
        # Later steps, left by an attempt that was cut back, count for nothing here.
        until_now = [found for found in list_checkpoints(run) if found.step <= step]
        for old in until_now[:-keep]:
            _remove(old.folder)
    return checkpoint.changed(folder=target)


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`; raises `CheckpointError`."""
    path = folder / "checkpoint.json"
    if not path.is_file():
        raise CheckpointError(
            f"{folder} holds no checkpoint", fix="name a folder with a checkpoint.json"
        )
    try:
        document = read_document(path)
        require_known_schema(document, path)
        return Checkpoint.read({**document, "folder": folder})
    except GymError as error:
        raise CheckpointError(error.message, fix=error.fix) from error


def list_checkpoints(run: RunDirectory) -> list[Checkpoint]:
    """All finished checkpoints whose description can be read, by optimizer step."""
    return [found for found, _ in _scan(run) if found is not None]


def verify(checkpoint: Checkpoint, *, hashes: bool = True) -> list[str]:
    """What is wrong with the files, in words; empty: nothing. Without `hashes`: sizes only."""
    problems = []
    for file in checkpoint.files:
        path = checkpoint.folder / file.path
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif path.stat().st_size != file.size:
            problems.append(f"{path} has {path.stat().st_size} bytes, not {file.size}")
        elif hashes and _sha256(path) != file.sha256:
            problems.append(f"{path} does not match its hash {file.sha256[:12]}…")
    return problems


def require_whole(folder: Path) -> Checkpoint:
    """The checkpoint in `folder` if its files are what was written; raises `CheckpointError`."""
    checkpoint = read_checkpoint(folder)
    problems = verify(checkpoint)
    if problems:
        raise CheckpointError(
            f"the checkpoint {folder} is damaged: {problems[0]}",
            fix=f"name another one of {folder.parent}",
        )
    return checkpoint


def latest_valid(run: RunDirectory) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint whose files are what was written; what is wrong with newer ones."""
    problems: list[str] = []
    for checkpoint, problem in reversed(_scan(run)):
        found = [problem] if checkpoint is None else verify(checkpoint)
        if not found:
            return checkpoint, problems
        problems += found
    return None, problems


def _scan(run: RunDirectory) -> list[tuple[Checkpoint | None, str]]:
    """Every numbered folder: its checkpoint, or why it has none."""
    if not run.checkpoints.is_dir():
        return []
    folders = [entry for entry in run.checkpoints.iterdir() if entry.name.isdecimal()]
    scanned: list[tuple[Checkpoint | None, str]] = []
    for folder in sorted(folders, key=lambda folder: int(folder.name)):
        try:
            scanned.append((read_checkpoint(folder), ""))
        except CheckpointError as error:
            scanned.append((None, error.message))
    return scanned


def _files_in(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))


def _describe(path: Path, folder: Path) -> CheckpointFile:
    """Hash a file and make it durable."""
    digest = _sha256(path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return CheckpointFile(
        path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=digest
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _hash_of(files: tuple[CheckpointFile, ...]) -> str:
    weights = [file for file in files if not file.path.startswith("resume/")]
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in weights)
    return hashlib.sha256(lines.encode()).hexdigest()


def _put_in_place(draft: Path, target: Path) -> None:
    """Rename; what lay there before (an attempt that was cut back) leaves in one step."""
    if target.exists():
        _remove(target)
    os.rename(draft, target)
    sync_folder(target.parent)


def _remove(folder: Path) -> None:
    """Make a folder vanish in one step, then delete it."""
    rubbish = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}.rubbish")
    os.rename(folder, rubbish)
    shutil.rmtree(rubbish, ignore_errors=True)


def _remove_leftovers(checkpoints: Path) -> None:
    """Delete what a killed writer left; a run has one writer of checkpoints at a time."""
    for pattern in (".*.draft", ".*.rubbish"):
        for leftover in checkpoints.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
