"""Handing an attempt to a platform, so that it can be found again whatever dies meanwhile.

What is asked for is written before it is asked, what was answered right after.
"""

from __future__ import annotations

import time

from training_gym.jobs.facts import Facts, deviations
from training_gym.records.checkpoints import latest_valid
from training_gym.records.documents import create_document, read_document_if_any, write_document
from training_gym.records.recorder import Recorder
from training_gym.records.results import read_result
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import run_status
from training_gym.spec.bridge import run_sync
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Job, JobRef, Platform
from training_gym.spec.settings import Settings


class Intent(Settings):
    """What is about to be asked of a platform: `attempts/<k>/intent.json`."""

    platform: str
    key: str
    """Name of the submission; submitting it twice is one job."""
    requested_at: float
    """Seconds since 1970."""
    resumed_from: str | None = None
    """Folder of the newest valid checkpoint; None: from the start."""
    deviations: tuple[str, ...] = ()
    """What differs from the run's first attempt."""


def submit_attempt(run: RunDirectory, job: Job, platform: Platform, facts: Facts) -> JobRef:
    """Write the attempt's files and submit it; raises `PlatformError` or `RecordsError`."""
    folder = run.attempt(job.attempt)
    checkpoint, _ = latest_valid(run)
    first = read_document_if_any(run.environment_path)
    differs = deviations(Facts.read(first), facts) if first is not None else ()
    intent = Intent(
        platform=platform.name,
        key=f"{run.run_id}-{job.attempt}",
        requested_at=time.time(),
        resumed_from=str(checkpoint.folder) if checkpoint is not None else None,
        deviations=differs,
    )
    if not create_document(folder / "intent.json", intent):
        raise PlatformError(
            f"attempt {job.attempt} of run {run.run_id} is being started by another process",
            fix=f"watch it: training-gym runs wait {run.run_id}",
        )
    write_document(folder / "environment.json", facts)
    write_document(folder / "job.json", job)
    if differs:
        _record_deviations(run, job.attempt, differs)
    ref = run_sync(platform.submit(job, intent.key))
    write_document(folder / "ref.json", ref)
    return ref


def next_attempt(run: RunDirectory) -> int:
    """The number a resume gets; raises `PlatformError` where there is nothing to resume."""
    status = run_status(run)
    if status in ("queued", "running"):
        raise PlatformError(
            f"run {run.run_id} is {status}",
            fix=f"wait for it, or stop it first: training-gym runs stop {run.run_id}",
        )
    if status == "completed":
        result = read_result(run)
        checkpoint = result.checkpoint.path if result and result.checkpoint else "…"
        raise PlatformError(
            f"run {run.run_id} has completed; there is nothing left to resume",
            fix=f"to train on, start a run with resume_from_checkpoint={checkpoint!r}",
        )
    return max(run.attempts(), default=0) + 1


def newest_ref(run: RunDirectory) -> JobRef | None:
    """What a platform last answered; None: it has not been asked or has not answered."""
    for attempt in reversed(run.attempts()):
        document = read_document_if_any(run.attempt(attempt) / "ref.json")
        if document is not None:
            return JobRef.read(document)
    return None


def _record_deviations(run: RunDirectory, attempt: int, differs: tuple[str, ...]) -> None:
    with Recorder(run, writer="launcher", attempt=attempt) as recorder:
        recorder.event("deviation", differs=list(differs))
