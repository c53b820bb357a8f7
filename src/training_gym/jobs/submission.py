"""Handing an attempt to a platform, so that it can be found again whatever dies meanwhile.

What is asked for is written before it is asked, what was answered right after.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from training_gym.jobs.facts import Facts, deviations
from training_gym.jobs.follow import to_stderr
from training_gym.records.checkpoints import Checkpoint, latest_valid
from training_gym.records.documents import create_document, read_document_if_any, write_document
from training_gym.records.processes import ProcessIdentity, is_alive, this_process
from training_gym.records.recorder import Recorder
from training_gym.records.results import Exit, read_result, write_exit, write_result
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import read_runner, run_status
from training_gym.spec.bridge import run_sync
from training_gym.spec.errors import GymError, PlatformError, RecordsError
from training_gym.spec.job import Job, JobRef, Platform
from training_gym.spec.run import RunSpec
from training_gym.spec.settings import Settings

RUNNER_ENDS_S = 15.0
"""Longest wait for the runner of an attempt that has ended."""


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
    launcher: ProcessIdentity | None = None
    """Who asks; if it dies before the answer is written, nobody else will ask."""


def new_run_id(run: RunSpec) -> str:
    """Sortable by time (UTC), readable, unique: `20260131-094210-haiku-3f7a`."""
    words = re.sub(r"[^a-z0-9]+", "-", (run.name or Path(run.model).name).lower()).strip("-")
    return (
        f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{words[:40].strip('-') or 'run'}-{secrets.token_hex(2)}"
    )


def submit_attempt(
    run: RunDirectory,
    job: Job,
    platform: Platform,
    facts: Facts,
    say: Callable[[str], None] = to_stderr,
) -> JobRef:
    """Write the attempt's files and submit it; raises `PlatformError` or `RecordsError`.

    `say` hears of checkpoints that are damaged and passed over.
    """
    folder = run.attempt(job.attempt)
    checkpoint, problems = latest_valid(run)
    if problems:
        _tell_of_damage(run, checkpoint, problems, say)
    first = read_document_if_any(run.environment_path)
    differs = deviations(Facts.read(first), facts) if first is not None else ()
    intent = Intent(
        platform=platform.name,
        key=f"{run.run_id}-{job.attempt}",
        requested_at=time.time(),
        resumed_from=str(checkpoint.folder) if checkpoint is not None else None,
        deviations=differs,
        launcher=this_process(),
    )
    if not _begun(folder, intent):
        raise PlatformError(
            f"attempt {job.attempt} of run {run.run_id} is being started by another process",
            fix=f"watch it: training-gym runs wait {run.run_id}",
        )
    try:
        write_document(folder / "environment.json", facts)
        write_document(folder / "job.json", job)
        if differs:
            _record_deviations(run, job.attempt, differs)
        ref = run_sync(platform.submit(job, intent.key))
    except GymError as refused:
        _take_back(run, job.attempt, refused)
        raise
    write_document(folder / "ref.json", ref)
    return ref


def _begun(folder: Path, intent: Intent) -> bool:
    """Write what is about to be asked; False: another process did. A full disk leaves nothing."""
    try:
        return create_document(folder / "intent.json", intent)
    except RecordsError:
        with contextlib.suppress(OSError):  # not empty: it is another's
            folder.rmdir()
        raise


def _tell_of_damage(
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    problems: list[str],
    say: Callable[[str], None],
) -> None:
    others = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    start = (
        "the beginning" if checkpoint is None else f"the one before it, of step {checkpoint.step}"
    )
    say(f"warning: a checkpoint of run {run.run_id} is damaged: {problems[0]}{others}")
    say(f"  resuming from {start}")


def _take_back(run: RunDirectory, attempt: int, refused: GymError) -> None:
    """Leave no attempt that seems to be queued: the run is as before, or failed from the start."""
    if (run.attempt(attempt) / "runner.json").exists():
        return
    if attempt > 1:
        shutil.rmtree(run.attempt(attempt))
        return
    now = time.time()
    document = {"type": type(refused).__name__, "message": refused.message, "fix": refused.fix}
    write_document(run.attempt(attempt) / "error.json", document)
    reason = f"it could not be submitted: {refused.message}"
    code = refused.exit_code
    write_exit(
        run, Exit(attempt=attempt, exit_code=code, reason=reason, started_at=now, ended_at=now)
    )
    write_result(run)


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
    attempt = max(run.attempts(), default=0)
    _await_runner(run, attempt)
    return attempt + 1


def _await_runner(run: RunDirectory, attempt: int) -> None:
    """A job runner lives a moment longer than the result that it writes."""
    runner = read_runner(run, attempt)
    deadline = time.monotonic() + RUNNER_ENDS_S
    while runner is not None and is_alive(runner) and time.monotonic() < deadline:
        time.sleep(0.05)


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
