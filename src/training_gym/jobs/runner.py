"""The job runner: attempt after attempt of one job on one node, until it has a result.

Whatever happens, every attempt gets an `exit.json` and the run a `result.json`; only SIGKILL or a
power failure prevents that, and then `records.status.reconcile` writes the result.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import closing, suppress

from training_gym.jobs.control import ControlRequest
from training_gym.jobs.engine_process import EngineProcess, Leash, reap_earlier
from training_gym.jobs.environment import engine_environment, require_secrets
from training_gym.jobs.outputs import Outputs
from training_gym.jobs.shipping import Shipping
from training_gym.jobs.source import unpack
from training_gym.jobs.supervision import Inbox, Supervision, describe_end
from training_gym.jobs.watch import HealthWatch
from training_gym.records.documents import create_document, write_document
from training_gym.records.processes import this_process
from training_gym.records.recorder import Recorder
from training_gym.records.reserve import give_up, set_aside
from training_gym.records.results import Exit, StoppedBy, write_exit, write_result
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError, PlatformError
from training_gym.spec.job import Job, NodeGroup

FIRST_RESTART_DELAY_S = 0.0
"""The first restart comes at once; further ones wait 1, 2, 4 … seconds."""
LONGEST_RESTART_DELAY_S = 60.0


def claim(run: RunDirectory, attempt: int) -> bool:
    """Take the attempt; False: another runner has it. Exactly one ever does."""
    return create_document(run.attempt(attempt) / "runner.json", this_process())


class JobRunner:
    """Runs one node group of a job. Make it in the main thread: it takes over the signals."""

    def __init__(
        self,
        run: RunDirectory,
        job: Job,
        group: str | None = None,
        held_back: Sequence[str] = (),
    ) -> None:
        """`held_back`: names of variables kept from the job, to be told."""
        self._run, self._job, self._group, self._held_back = run, job, group, held_back
        self._inbox = Inbox(run, job.attempt)
        self._restarts = 0

    def run_to_the_end(self) -> int:
        """All attempts; returns the exit code of the last and leaves `result.json`."""
        self._listen()
        with closing(Shipping(self._run)):
            leash = Leash(self._run)
            try:
                ending = self._attempt(leash)
                while ending.next_attempt is not None:
                    ending = self._try_again(ending, leash)
            finally:
                leash.release()
            self._answer(self._inbox.new_requests(), "refused", "the job has ended")
            write_result(self._run)
        return ending.exit_code

    def _listen(self) -> None:
        """Survive the terminal's end; note other signals for the supervision."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: self._inbox.signals.append(received))

    def _attempt(self, leash: Leash) -> Exit:
        """Run the engine once and write down how it ended."""
        started_at = time.time()
        number = self._job.attempt
        try:
            ending = self._run_engine(leash, started_at)
        except GymError as error:
            _write_error(self._run, number, error)
            ending = _failed(number, started_at, error.exit_code, error.message)
        except Exception as error:
            # The job's boundary: an error of ours must leave an exit file as well.
            ending = _failed(number, started_at, 70, f"the job runner failed: {error!r}")
            write_exit(self._run, ending)
            write_result(self._run)
            raise
        if self._may_restart(ending):
            ending = ending.changed(next_attempt=number + 1)
        write_exit(self._run, ending)
        return ending

    def _run_engine(self, leash: Leash, started_at: float) -> Exit:
        run, job = self._run, self._job
        recorder = Recorder(run, writer="runner", attempt=job.attempt)
        try:
            set_aside(run, job.attempt)
            reap_earlier(run, job.attempt)
            if job.source_sha256 is not None:
                unpack(run.source_archive, run.source, job.source_sha256)
            require_secrets(job, os.environ)
            with (
                closing(HealthWatch(run, job.attempt)),
                closing(Outputs(run, job, job.attempt, recorder)) as outputs,
            ):
                code, stopped_by = self._watch_engine(leash, outputs, recorder)
            ending = describe_end(job, code, stopped_by, started_at, outputs)
            with suppress(GymError):
                recorder.event("attempt_ended", exit_code=ending.exit_code, reason=ending.reason)
            return ending
        finally:
            give_up(run, job.attempt)
            with suppress(GymError):  # a full disk is the engine's to report
                recorder.close()

    def _watch_engine(
        self, leash: Leash, outputs: Outputs, recorder: Recorder
    ) -> tuple[int, StoppedBy | None]:
        """Start the engine, wait for its end, and leave nothing of it."""
        run, job = self._run, self._job
        env = engine_environment(job, run, job.attempt, os.environ)
        command = _group(job, self._group).command
        engine = EngineProcess.start(command, env, run, job.attempt, outputs, leash)
        try:
            with suppress(GymError):
                withheld = list(self._held_back)
                recorder.event("engine_started", pid=engine.pid, withheld=withheld)
            return Supervision(run, job, engine, outputs, recorder, self._inbox).watch()
        finally:
            engine.clean_up()

    def _may_restart(self, ending: Exit) -> bool:
        """A crash may be tried again; a user's error, a wish to stop or a last step is final."""
        folder = self._run.attempt(ending.attempt)
        crashed = ending.exit_code != 0 and ending.stopped_by is None
        final = any((folder / name).exists() for name in ("error.json", "summary.json"))
        return crashed and not final and self._restarts < self._job.max_restarts

    def _try_again(self, ending: Exit, leash: Leash) -> Exit:
        self._restarts += 1
        stopped_by = self._stopped_while_waiting(_delay_s(self._restarts))
        if stopped_by is not None:
            ending = ending.changed(
                next_attempt=None, stopped_by=stopped_by, reason="stopped before another attempt"
            )
            write_exit(self._run, ending)
            return ending
        number = ending.attempt + 1
        job = self._job.changed(attempt=number)
        if not _begin_attempt(self._run, job):
            raise PlatformError(
                f"attempt {number} of run {self._run.run_id} was begun by somebody else",
                fix="let one launcher at a time resume a run",
            )
        self._job = job
        return self._attempt(leash)

    def _stopped_while_waiting(self, delay_s: float) -> StoppedBy | None:
        """Who asked to stop between two attempts; looks at least once."""
        until = time.monotonic() + delay_s
        while True:
            asked = [request for request in self._inbox.new_requests() if _ends(request)]
            live = [request for request in asked if not self._inbox.expired(request)]
            wish = self._inbox.signalled()
            if live:
                self._answer(live, "delivered", "between two attempts")
                wish = wish or "stop"
            if wish is not None or time.monotonic() >= until:
                return wish
            time.sleep(0.1)

    def _answer(self, requests: Sequence[ControlRequest], outcome: str, reason: str) -> None:
        """Answer what no supervision could."""
        if not requests:
            return
        recorder = Recorder(self._run, writer="runner", attempt=self._job.attempt)
        for request in requests:
            self._inbox.answer(request, recorder, outcome, reason)
        with suppress(GymError):  # a full disk is the engine's to report
            recorder.close()


def _ends(request: ControlRequest) -> bool:
    return request.kind in ("stop", "stop_now")


def _group(job: Job, name: str | None) -> NodeGroup:
    for group in job.groups:
        if name in (None, group.name):
            return group
    raise PlatformError(
        f"the job has no node group {name!r}",
        fix="known: " + ", ".join(group.name for group in job.groups),
    )


def _begin_attempt(run: RunDirectory, job: Job) -> bool:
    """Make the next attempt's folder, with its runner, in one step; False: there is one."""
    folder = run.attempt(job.attempt)
    draft = folder.with_name(f".{job.attempt}-{uuid.uuid4().hex[:8]}.draft")
    write_document(draft / "job.json", job)
    write_document(draft / "runner.json", this_process())
    try:
        os.rename(draft, folder)
    except OSError:
        return False
    return True


def _delay_s(restart: int) -> float:
    if restart == 1:
        return FIRST_RESTART_DELAY_S
    return min(LONGEST_RESTART_DELAY_S, 2.0 ** (restart - 2))


def _failed(attempt: int, started_at: float, exit_code: int, reason: str) -> Exit:
    return Exit(
        attempt=attempt,
        exit_code=exit_code,
        reason=reason,
        started_at=started_at,
        ended_at=time.time(),
    )


def _write_error(run: RunDirectory, attempt: int, error: GymError) -> None:
    print(error, file=sys.stderr)  # noqa: T201 - into the attempt's output.log
    document = {
        "type": type(error).__name__,
        "message": error.message,
        "fix": error.fix,
        "exit_code": error.exit_code,
    }
    write_document(run.attempt(attempt) / "error.json", document)
