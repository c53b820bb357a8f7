"""What became of a run, derived from its files and from the process they name."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from training_gym.records.documents import read_document_if_any
from training_gym.records.processes import ProcessIdentity, is_alive
from training_gym.records.readers import last_record
from training_gym.records.results import Result, read_result, write_result
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError

RunStatus = Literal["queued", "running", "completed", "stopped", "failed", "lost"]

HEARTBEAT_S = 5.0
"""Seconds between two heartbeats of the job runner."""
LOST_AFTER_S = 300.0
"""Seconds of silence after which a job that cannot be asked counts as lost."""

ORPHANED_AFTER_S = 15.0
"""Seconds a job may take to show itself whose launcher died before the platform's answer."""


def run_status(run: RunDirectory) -> RunStatus:
    """`queued`, `running`, `completed`, `stopped`, `failed` or `lost`."""
    result = read_result(run)
    if result is not None:
        return result.status
    attempt = max(run.attempts(), default=0)
    runner = read_runner(run, attempt)
    if runner is None:
        return "queued" if _may_still_start(run, attempt) else "lost"
    alive = is_alive(runner)
    if alive is None:
        alive = _silence_s(run, attempt) < LOST_AFTER_S
    if alive:
        return "running"
    late = read_result(run)  # written between the first look and the process's end
    return "lost" if late is None else late.status


def reconcile(run: RunDirectory) -> Result | None:
    """Write the result of a run whose job is gone; None: it still runs or waits."""
    result = read_result(run)
    if result is None and run_status(run) == "lost":
        result = write_result(run)
    return result


def read_runner(run: RunDirectory, attempt: int) -> ProcessIdentity | None:
    """The job runner that took the attempt: `attempts/<k>/runner.json`."""
    document = read_document_if_any(run.attempt(attempt) / "runner.json")
    return None if document is None else ProcessIdentity.read(document)


@dataclass(frozen=True)
class RunSummary:
    """One line of a list of runs."""

    run_id: str
    path: Path
    status: RunStatus
    created_at: float
    """Seconds since 1970."""
    name: str | None = None
    model: str = ""
    tags: tuple[str, ...] = ()
    result: Mapping[str, Any] | None = None
    """`result.json` as it stands, if it still holds."""
    problem: str = ""
    """Why the run's files could not be read."""


def list_runs(runs: Path) -> list[RunSummary]:
    """All runs in a folder, newest first; damaged ones say what their problem is."""
    if not runs.is_dir():
        return []
    found = [
        _summarise(RunDirectory(entry))
        for entry in runs.iterdir()
        if not entry.name.startswith(".") and (entry / "manifest.json").exists()
    ]
    return sorted(found, key=lambda summary: (-summary.created_at, summary.run_id))


def _summarise(run: RunDirectory) -> RunSummary:
    """Reads the manifest and the result as plain data: lists may be long."""
    try:
        manifest = json.loads(run.manifest_path.read_bytes())
        result = _current_result(run)
        return RunSummary(
            run_id=manifest["run_id"],
            path=run.path,
            status=run_status(run) if result is None else result["status"],
            created_at=manifest["created_at"],
            name=manifest.get("name"),
            model=str(manifest["run"].get("model", "")),
            tags=tuple(manifest.get("tags", ())),
            result=result,
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, GymError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        return RunSummary(run.run_id, run.path, "failed", 0.0, problem=problem)


def _current_result(run: RunDirectory) -> dict[str, Any] | None:
    try:
        result: dict[str, Any] = json.loads(run.result_path.read_bytes())
    except FileNotFoundError:
        return None
    return None if result["attempts"] < max(run.attempts(), default=0) else result


def _may_still_start(run: RunDirectory, attempt: int) -> bool:
    """Whether a platform knows of the attempt, or the launcher may yet ask it."""
    if (run.attempt(attempt) / "ref.json").exists():
        return True
    intent = run.attempt(attempt) / "intent.json"
    launcher = (read_document_if_any(intent) or {}).get("launcher")
    orphaned = launcher is not None and is_alive(ProcessIdentity.read(launcher)) is False
    asked = intent if intent.exists() else run.manifest_path
    try:
        waited = time.time() - asked.stat().st_mtime
    except FileNotFoundError:
        return False
    return waited < (ORPHANED_AFTER_S if orphaned else LOST_AFTER_S)


def _silence_s(run: RunDirectory, attempt: int) -> float:
    """Seconds since the job runner last gave a sign."""
    newest = last_record(run, "heartbeat", writer="runner")
    sign: float = (
        newest["time"]
        if newest is not None and newest["attempt"] == attempt
        else (run.attempt(attempt) / "runner.json").stat().st_mtime
    )
    return time.time() - sign
