"""Which submission is which job: keys, attempts, runners, all in files."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training_gym.records.documents import read_document_if_any, storage_error, write_document
from training_gym.records.processes import ProcessIdentity
from training_gym.records.results import read_exit
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import read_runner
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Job, JobRef


class Submissions:
    """`runs/.submissions/`: the attempt that each key stands for."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs

    def find(self, key: str) -> JobRef | None:
        """The submission whose runner has started; None: there is none, or it never began."""
        known = read_document_if_any(self._path(key))
        if known is None:
            return None
        run, attempt = RunDirectory(self._runs / known["run_id"]), int(known["attempt"])
        runner = read_runner(run, attempt)
        return None if runner is None else make_ref(key, run, attempt, runner)

    def register(self, key: str, job: Job) -> None:
        """Remember what a key stands for, before anything starts."""
        if read_runner(RunDirectory(self._runs / job.run_id), job.attempt) is not None:
            raise PlatformError(
                f"attempt {job.attempt} of run {job.run_id} was submitted under another key",
                fix="use the key of the first submission, or a new attempt",
            )
        entry = {"key": key, "run_id": job.run_id, "attempt": job.attempt}
        write_document(self._path(key), entry)

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """One submission of a key at a time; the system frees the lock of a launcher that dies."""
        path = self._path(key).with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        except OSError as error:
            raise storage_error(error, path) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, key: str) -> Path:
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        return self._runs / ".submissions" / f"{digest}.json"


def make_ref(key: str, run: RunDirectory, attempt: int, runner: ProcessIdentity) -> JobRef:
    """What the platform answers to a submission."""
    return JobRef(
        platform="local",
        key=key,
        native_id=str(runner.pid),
        detail={
            "run_directory": str(run.path),
            "attempt": str(attempt),
            "started": runner.started,
            "host": runner.host,
            "boot": runner.boot,
        },
    )


def run_of(ref: JobRef) -> RunDirectory:
    """The job's run directory; raises `PlatformError` for another platform's job."""
    if ref.platform != "local" or "run_directory" not in ref.detail:
        raise PlatformError(
            f"{ref.platform!r} submitted {ref.key!r}, not the local platform",
            fix="ask the platform that submitted it",
        )
    return RunDirectory(Path(ref.detail["run_directory"]))


def runner_of(ref: JobRef) -> ProcessIdentity:
    """The job runner's process."""
    wanted = {name: ref.detail[name] for name in ("started", "host", "boot")}
    return ProcessIdentity(pid=int(ref.native_id), **wanted)


def first_attempt(ref: JobRef) -> int:
    """The attempt that was submitted."""
    return int(ref.detail["attempt"])


def last_attempt(ref: JobRef) -> int:
    """The attempt that the runner has come to by restarts of its own."""
    run, attempt = run_of(ref), first_attempt(ref)
    while (ending := read_exit(run, attempt)) is not None and ending.next_attempt is not None:
        if not run.attempt(ending.next_attempt).is_dir():
            break
        attempt = ending.next_attempt
    return attempt
