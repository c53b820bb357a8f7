"""Jobs as detached processes on this machine; what is known of them lies in files.

A job is one job runner (`jobs.inside`) in a session of its own. Which runner has an attempt is
decided by `attempts/<k>/runner.json`, which exactly one process can create: a launcher that dies
between asking and starting leaves nothing that the next one could start twice.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from training_gym.jobs.environment import ATTEMPT, RUN, require_secrets
from training_gym.jobs.leash import kill_processes
from training_gym.platforms.local.logs import read_logs
from training_gym.platforms.local.machine import probe_machine
from training_gym.platforms.local.submissions import (
    Submissions,
    first_attempt,
    last_attempt,
    make_ref,
    run_of,
    runner_of,
)
from training_gym.records.documents import create_document, write_document
from training_gym.records.processes import ProcessIdentity, is_alive
from training_gym.records.results import (
    Exit,
    last_result,
    read_exit,
    read_result,
    write_exit,
)
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import read_runner, reconcile
from training_gym.spec.code import INSIDE_JOB
from training_gym.spec.errors import PlatformError, RecordsError
from training_gym.spec.home import runs_directory
from training_gym.spec.job import Capabilities, Job, JobRef, JobState, LogChunk
from training_gym.spec.plan import Machine

START_TIMEOUT_S = 60.0
"""Longest wait for a started job runner to take its attempt."""
CANCEL_GRACE_S = 15.0
"""Longest wait for a cancelled job runner to end its engine by itself."""
KILL_GRACE_S = 5.0
"""Longest wait for a killed process to be gone."""


class LocalPlatform:
    """This machine. A job outlives the launcher, the terminal and the notebook."""

    name = "local"

    def __init__(self, runs: Path | None = None) -> None:
        """`runs` holds the run directories; None: those of `TRAINING_GYM_HOME`."""
        self._runs = (runs_directory() if runs is None else runs).resolve()
        self._submissions = Submissions(self._runs)

    def capabilities(self) -> Capabilities:
        """One node, whatever accelerators it has, records by the same path."""
        return Capabilities(
            max_nodes=1, accelerators=True, detached=True, images=False, records=("shared_path",)
        )

    async def probe(self) -> Machine:
        """Cores, memory and accelerators that a job started now could use."""
        return await asyncio.to_thread(probe_machine)

    def render(self, job: Job) -> Mapping[str, str]:
        """The job's description and the command that runs it."""
        folder = f"attempts/{job.attempt}"
        return {
            f"{folder}/job.json": job.model_dump_json(indent=2) + "\n",
            f"{folder}/command.sh": shlex.join(self._command(job)) + "\n",
        }

    async def submit(self, job: Job, key: str) -> JobRef:
        """Start the job runner and return once it has taken the attempt."""
        return await asyncio.to_thread(self._submit, job, key)

    async def find(self, key: str) -> JobRef | None:
        """The submission with this key whose runner has started."""
        return await asyncio.to_thread(self._submissions.find, key)

    async def state(self, ref: JobRef) -> JobState:
        """From exit files, and from the runner's process where there is none."""
        return await asyncio.to_thread(self._state, ref)

    async def logs(self, ref: JobRef, cursor: str = "") -> LogChunk:
        """Whole lines of what runner and engine said, attempt after attempt."""
        return await asyncio.to_thread(read_logs, ref, cursor)

    async def fetch(self, ref: JobRef, path: str) -> bytes:
        """A file below the run directory; links that lead out of it are not followed."""
        return await asyncio.to_thread(self._fetch, ref, path)

    async def cancel(self, ref: JobRef) -> None:
        """End runner, engine and all they started; what ended already stays as it is."""
        await asyncio.to_thread(self._cancel, ref)

    def _command(self, job: Job) -> list[str]:
        run = str(self._runs / job.run_id)
        inside = [sys.executable, "-P", "-m", "training_gym.jobs.inside"]
        return [*inside, "--run", run, "--attempt", str(job.attempt)]

    def _submit(self, job: Job, key: str) -> JobRef:
        _require_one_node(job)
        run = RunDirectory(self._runs / job.run_id)
        with self._submissions.locked(key):
            known = self._submissions.find(key)
            if known is not None:
                return known
            require_secrets(job, os.environ)
            _require_idle(run, job.attempt)
            self._submissions.register(key, job)
            if not create_document(run.attempt(job.attempt) / "job.json", job):
                _require_same(run, job)
            runner = self._start(run, job)
        return make_ref(key, run, job.attempt, runner)

    def _start(self, run: RunDirectory, job: Job) -> ProcessIdentity:
        """Start a runner and wait until it, or one started before, has the attempt."""
        around = {k: v for k, v in os.environ.items() if k not in (INSIDE_JOB, RUN, ATTEMPT)}
        with open(run.attempt(job.attempt) / "output.log", "ab") as log:
            process = subprocess.Popen(
                self._command(job),
                env=around,
                cwd=run.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # Somebody has to take the exit status, or an ended runner stays as a zombie.
        threading.Thread(target=process.wait, name="reap-runner", daemon=True).start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            runner = read_runner(run, job.attempt)
            if runner is not None:
                return runner
            if ended:
                break
            time.sleep(0.02)
        process.kill()
        said = (run.attempt(job.attempt) / "output.log").read_text(errors="replace").splitlines()
        raise PlatformError(
            f"the job runner did not start: {'; '.join(said[-2:]) or 'it said nothing'}",
            fix=f"read {run.attempt(job.attempt) / 'output.log'}",
        )

    def _state(self, ref: JobRef) -> JobState:
        run, runner = run_of(ref), runner_of(ref)
        for _ in range(2):  # it may end, or go on to another attempt, between two looks
            ending = read_exit(run, last_attempt(ref))
            alive = is_alive(runner) is not False
            if ending is not None and ending.next_attempt is None:
                result_comes = alive and read_result(run) is None
                return JobState(status="running") if result_comes else _ended(ending)
            if alive:
                return JobState(status="running")
        return JobState(status="lost", reason="the job runner is gone and left no exit file")

    def _fetch(self, ref: JobRef, path: str) -> bytes:
        root = run_of(ref).path.resolve()
        target = (root / path).resolve()
        if not target.is_relative_to(root) or target == root:
            raise PlatformError(
                f"{path!r} is not below the run directory",
                fix="give a path relative to the run directory, without '..'",
            )
        try:
            return target.read_bytes()
        except OSError as error:
            raise PlatformError(
                f"the run has no file {path!r}: {error.strerror}",
                fix="check the path; the file may not be written yet",
            ) from error

    def _cancel(self, ref: JobRef) -> None:
        run, runner = run_of(ref), runner_of(ref)
        state = self._state(ref)
        if state.status == "running":
            write_document(run.attempt(first_attempt(ref)) / "cancel.json", {"at": time.time()})
            _signal(runner, signal.SIGTERM)
            if not _wait_for_end(runner, CANCEL_GRACE_S):
                _signal(runner, signal.SIGKILL)
                _wait_for_end(runner, KILL_GRACE_S)
        attempt = last_attempt(ref)
        if read_exit(run, attempt) is None and attempt == max(run.attempts()):
            kill_processes(str(run.path))
            write_exit(run, _cancelled(run, attempt))
            reconcile(run)


def _ended(ending: Exit) -> JobState:
    if ending.exit_code == 0:
        return JobState(status="succeeded", exit_code=0, reason=ending.reason)
    return JobState(
        status="failed" if ending.stopped_by is None else "cancelled",
        exit_code=ending.exit_code,
        reason=ending.reason,
    )


def _cancelled(run: RunDirectory, attempt: int) -> Exit:
    """The exit file of an attempt whose runner had to be killed."""
    started_at = (run.attempt(attempt) / "runner.json").stat().st_mtime
    return Exit(
        attempt=attempt,
        exit_code=128 + signal.SIGKILL,
        signal="SIGKILL",
        stopped_by="cancel",
        reason="cancelled",
        started_at=started_at,
        ended_at=time.time(),
    )


def _wait_for_end(process: ProcessIdentity, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _signal(process: ProcessIdentity, number: int) -> None:
    """Signal a process unless its id belongs to another by now."""
    if is_alive(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _require_one_node(job: Job) -> None:
    nodes = sum(group.count for group in job.groups)
    if nodes != 1:
        raise PlatformError(
            f"the job asks for {nodes} nodes, this machine is one",
            fix="use one node group of one node, or another platform",
        )
    image = job.groups[0].image
    if image is not None:
        raise PlatformError(
            f"the job asks for the image {image!r}; local jobs run without containers",
            fix="leave image out, or use another platform",
        )


def _require_idle(run: RunDirectory, attempt: int) -> None:
    """Two attempts of a run at once would write over each other's checkpoints."""
    result = last_result(run)
    over = 0 if result is None else result.attempts  # their runners do nothing more
    for number in run.attempts():
        runner = read_runner(run, number) if number > over and number != attempt else None
        if runner is not None and is_alive(runner):
            raise PlatformError(
                f"attempt {number} of run {run.run_id} still runs (process {runner.pid})",
                fix="stop it first",
            )


def _require_same(run: RunDirectory, job: Job) -> None:
    try:
        same = run.job(job.attempt) == job
    except RecordsError:
        same = False
    if not same:
        raise PlatformError(
            f"attempt {job.attempt} of run {run.run_id} has another job.json",
            fix="submit the job that lies there, or a new attempt",
        )
