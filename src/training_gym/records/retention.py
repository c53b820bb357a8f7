"""What may be deleted of runs, and deleting it: planned first, named file by file, never guessed.

Whatever is not recognised stays. A run that is queued or running is not touched, and the
checkpoint that a result or another run names is always kept.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from training_gym.records.checkpoints import Checkpoint, list_checkpoints
from training_gym.records.documents import storage_error
from training_gym.records.lines import sidecar
from training_gym.records.results import last_result
from training_gym.records.run_directory import RunDirectory
from training_gym.records.segments import segments
from training_gym.records.status import run_status
from training_gym.spec.errors import GymError
from training_gym.spec.settings import Settings

DAY_S = 86_400.0


class Retention(Settings):
    """What is kept; None: everything of this kind."""

    runs_days: float | None = Field(None, ge=0)
    """Whole runs that ended longer ago are deleted."""
    keep_tags: tuple[str, ...] = ("keep",)
    """Runs with one of these tags are not."""
    checkpoints: int | None = Field(None, ge=1)
    """Newest checkpoints of a run that stay, besides the one that its result names."""
    resume_days: float | None = Field(None, ge=0)
    """Optimizer states (`resume/`) of completed runs that ended longer ago are deleted."""
    episodes_days: float | None = Field(None, ge=0)
    """Episodes and token columns of runs that ended longer ago are deleted."""
    logs_days: float | None = Field(None, ge=0)
    """Log lines of runs that ended longer ago are deleted."""
    drafts: bool = True
    """Half-written checkpoints of processes that are gone are deleted."""


@dataclass(frozen=True)
class Removal:
    """One thing to delete."""

    path: Path
    size: int
    """Bytes."""
    why: str


@dataclass(frozen=True)
class RunTags:
    """A run and the tags it has now."""

    run: RunDirectory
    tags: Sequence[str] = ()


def plan_removals(runs: Iterable[RunTags], policy: Retention) -> list[Removal]:
    """What the policy lets go, by run; nothing is touched."""
    found: list[Removal] = []
    known = list(runs)
    parents, finals = _parents(known), _finals(known)
    for tagged in known:
        try:
            status = run_status(tagged.run)
        except GymError:
            continue  # it cannot be read: nothing of it can be named
        if status in ("queued", "running"):
            continue
        age_d = (time.time() - _ended_at(tagged.run)) / DAY_S
        kept = bool(set(policy.keep_tags) & set(tagged.tags))
        holds = any(one.is_relative_to(tagged.run.path.resolve()) for one in parents)
        if not kept and not holds and _older(age_d, policy.runs_days):
            why = f"ended {age_d:.0f} days ago"
            found.append(Removal(tagged.run.path, _size(tagged.run.path), why))
            continue
        if not kept:
            found += _of_run(tagged.run, policy, age_d, completed=status == "completed")
        found += _checkpoints(tagged.run, policy, parents | finals)
    return found


def remove(removals: Iterable[Removal]) -> int:
    """Delete what was planned; bytes freed. Raises `RecordsError` where that is not allowed."""
    freed = 0
    for removal in removals:
        try:
            if removal.path.is_dir() and not removal.path.is_symlink():
                # Hidden first: a reader sees either all of it or nothing.
                hidden = removal.path.with_name(f".{removal.path.name}.removed")
                removal.path.rename(hidden)
                shutil.rmtree(hidden)
            else:
                removal.path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, removal.path) from error
        freed += removal.size
    return freed


def _of_run(
    run: RunDirectory, policy: Retention, age_d: float, *, completed: bool
) -> list[Removal]:
    found: list[Removal] = []
    for streams, limit in (
        (("episodes", "tokens"), policy.episodes_days),
        (("logs",), policy.logs_days),
    ):
        if not _older(age_d, limit):
            continue
        for stream in streams:
            for segment in segments(run.streams / stream):
                paths = [path for path in (segment.path, sidecar(segment.path)) if path.exists()]
                found += [Removal(path, _size(path), f"{stream} of an old run") for path in paths]
    if completed and _older(age_d, policy.resume_days):
        found += [
            Removal(checkpoint.resume, _size(checkpoint.resume), "the run has completed")
            for checkpoint in list_checkpoints(run)
            if checkpoint.resume.is_dir()
        ]
    if policy.drafts and run.checkpoints.is_dir():
        found += [
            Removal(path, _size(path), "a checkpoint that was never finished")
            for path in sorted(run.checkpoints.glob(".*.draft"))
        ]
    return found


def _checkpoints(run: RunDirectory, policy: Retention, named: set[Path]) -> list[Removal]:
    if policy.checkpoints is None:
        return []
    old: list[Checkpoint] = list_checkpoints(run)[: -policy.checkpoints]
    return [
        Removal(one.folder, _size(one.folder), f"older than the newest {policy.checkpoints}")
        for one in old
        if one.folder.resolve() not in named
    ]


def _parents(runs: Iterable[RunTags]) -> set[Path]:
    """Checkpoints that a run started from: they keep the whole run that they lie in."""
    found: set[Path] = set()
    for tagged in runs:
        try:
            manifest = tagged.run.manifest
        except GymError:
            continue
        started = (*manifest.parents, manifest.run.get("resume_from_checkpoint"))
        found |= {Path(one).resolve() for one in started if isinstance(one, str) and "/" in one}
    return found


def _finals(runs: Iterable[RunTags]) -> set[Path]:
    """Checkpoints that results name: they stay as long as their run."""
    found: set[Path] = set()
    for tagged in runs:
        try:
            result = last_result(tagged.run)
        except GymError:
            continue
        if result is not None and result.checkpoint is not None:
            found.add(Path(result.checkpoint.path).resolve())
    return found


def _ended_at(run: RunDirectory) -> float:
    """When the run last wrote down how it ended; else when its folder last changed."""
    path = run.result_path if run.result_path.exists() else run.path
    return path.stat().st_mtime


def _older(age_d: float, limit: float | None) -> bool:
    return limit is not None and age_d >= limit


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
