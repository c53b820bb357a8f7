"""One attempt's engine: watched, stopped when asked to, and its end described."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass

from training_gym.jobs.control import ACKNOWLEDGED, ControlRequest, pending
from training_gym.jobs.engine_process import EngineProcess
from training_gym.jobs.outputs import Outputs
from training_gym.records.recorder import Recorder
from training_gym.records.results import Exit, StoppedBy
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import HEARTBEAT_S
from training_gym.spec.errors import GymError
from training_gym.spec.job import Job

TICK_S = 0.1
"""How often requests are looked for."""
STOP_NOW_GRACE_S = 10.0
"""Seconds between the last friendly signal and SIGKILL."""

_REASONS: dict[StoppedBy, str] = {
    "stop": "stopped on request",
    "stop_now": "stopped at once on request",
    "cancel": "cancelled",
    "platform": "ended by SIGTERM from outside: the platform, or whoever may signal its processes",
}


class Inbox:
    """What is asked of the job: control requests, and signals to the job runner."""

    def __init__(self, run: RunDirectory, attempt: int) -> None:
        """`attempt` is the one that was submitted; what was asked before it has expired."""
        self._run = run
        self._submitted = run.attempt(attempt)
        asked = [self._submitted / name for name in ("intent.json", "job.json")]
        self._not_before = min(path.stat().st_mtime for path in asked if path.exists())
        self._answered: set[str] = set()
        self.signals: list[int] = []
        """Filled by signal handlers."""

    def new_requests(self) -> list[ControlRequest]:
        """Those that nobody has answered."""
        try:
            waiting = any(self._run.control.iterdir()) and pending(self._run)
        except (FileNotFoundError, GymError):
            return []
        return [asked for asked in waiting or [] if asked.id not in self._answered]

    def expired(self, asked: ControlRequest) -> bool:
        """Whether it was meant for an earlier attempt."""
        return asked.requested_at < self._not_before

    def signalled(self) -> StoppedBy | None:
        """What the signals so far ask for; they count as taken."""
        taken, self.signals[:] = list(self.signals), []
        if not taken:
            return None
        if signal.SIGTERM not in taken:
            return "stop"
        return "cancel" if (self._submitted / "cancel.json").exists() else "platform"

    def answer(self, asked: ControlRequest, recorder: Recorder, outcome: str, reason: str) -> None:
        """Acknowledge in the events, once."""
        self._answered.add(asked.id)
        with contextlib.suppress(GymError):  # a full disk: the request is obeyed all the same
            recorder.event(
                ACKNOWLEDGED, id=asked.id, request=asked.kind, outcome=outcome, reason=reason
            )


@dataclass(frozen=True)
class Stopping:
    """The engine has been asked to end."""

    by: StoppedBy
    at_once: bool
    deadline: float
    """On the monotonic clock: then comes the next, harder step."""


class Supervision:
    """Watches one engine until it has ended."""

    def __init__(
        self,
        run: RunDirectory,
        job: Job,
        engine: EngineProcess,
        outputs: Outputs,
        recorder: Recorder,
        inbox: Inbox,
    ) -> None:
        self._run, self._job, self._engine, self._outputs = run, job, engine, outputs
        self._recorder, self._inbox = recorder, inbox
        self._ready = run.attempt(job.attempt) / "ready"
        self._stopping: Stopping | None = None
        self._next_beat = 0.0

    def watch(self) -> tuple[int, StoppedBy | None]:
        """The engine's exit code, negative for a signal, and who made it end."""
        while (code := self._engine.poll()) is None:
            self._beat()
            self._obey()
            self._insist()
            self._outputs.poll_files()
            if self._outputs.ended.wait(TICK_S):
                self._outputs.ended.clear()
        self._obey()
        return code, None if self._stopping is None else self._stopping.by

    def _beat(self) -> None:
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + HEARTBEAT_S
        phase = "running" if self._stopping is None else "stopping"
        with contextlib.suppress(GymError):
            self._recorder.heartbeat(engine_pid=self._engine.pid, phase=phase)

    def _obey(self) -> None:
        wish = self._inbox.signalled()
        if wish == "stop":
            self._stop("stop")
        elif wish is not None:
            self._stop_now(wish)
        for asked in self._inbox.new_requests():
            answer = self._obey_request(asked)
            if answer is not None:
                self._inbox.answer(asked, self._recorder, *answer)

    def _obey_request(self, asked: ControlRequest) -> tuple[str, str] | None:
        """Outcome and reason; None: later."""
        if self._inbox.expired(asked):
            return "expired", "asked of an earlier attempt"
        if self._engine.poll() is not None:
            return None  # what comes too late for this attempt may prevent the next
        if asked.kind == "stop":
            return "delivered", self._stop("stop")
        if asked.kind == "stop_now":
            return "delivered", self._stop_now("stop_now")
        if asked.kind not in self._job.signals:
            return "refused", f"this engine knows no {asked.kind!r}"
        if not self._ready.exists():
            return None
        return "delivered", self._send(self._job.signals[asked.kind])

    def _stop(self, by: StoppedBy) -> str:
        if self._stopping is not None:
            return "already stopping"
        if "stop" not in self._job.signals or not self._ready.exists():
            # Training has not begun, or the engine cannot end gently: there is nothing to wait for.
            return self._stop_now(by)
        deadline = time.monotonic() + self._job.stop_grace_s
        self._stopping = Stopping(by, at_once=False, deadline=deadline)
        return self._send(self._job.signals["stop"])

    def _stop_now(self, by: StoppedBy) -> str:
        if self._stopping is not None and self._stopping.at_once:
            return "already stopping"
        grace_s = min(STOP_NOW_GRACE_S, self._job.stop_grace_s)
        self._stopping = Stopping(by, at_once=True, deadline=time.monotonic() + grace_s)
        return self._send(self._job.signals.get("stop_now", "SIGTERM"))

    def _send(self, name: str) -> str:
        self._engine.send(name)
        return name

    def _insist(self) -> None:
        """Take the next, harder step if the engine has not ended in time."""
        if self._stopping is None or time.monotonic() < self._stopping.deadline:
            return
        if self._stopping.at_once:
            self._engine.kill_all()
        else:
            self._stop_now(self._stopping.by)


def describe_end(
    job: Job, code: int, stopped_by: StoppedBy | None, started_at: float, outputs: Outputs
) -> Exit:
    """The attempt's `exit.json`."""
    name = signal.Signals(-code).name if code < 0 else None
    if stopped_by is not None:
        reason = _REASONS[stopped_by]
    elif name is not None:
        reason = f"the engine was killed by {name}"
    else:
        reason = "finished" if code == 0 else f"the engine exited with code {code}"
    return Exit(
        attempt=job.attempt,
        exit_code=128 - code if code < 0 else code,
        signal=name,
        stopped_by=stopped_by,
        reason=reason,
        started_at=started_at,
        ended_at=time.time(),
        last_lines=outputs.last_lines,
    )
