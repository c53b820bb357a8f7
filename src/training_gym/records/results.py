"""How an attempt and a run ended: `exit.json` and `result.json`, composed from files alone.

The job runner writes both. Where it was killed before it could, `status.reconcile` does.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import JsonValue

from training_gym.records.checkpoints import latest_valid
from training_gym.records.documents import read_document, read_document_if_any, write_document
from training_gym.records.readers import last_record
from training_gym.records.run_directory import (
    SCHEMA_VERSION,
    RunDirectory,
    require_known_schema,
)
from training_gym.spec.settings import Settings

StoppedBy = Literal["stop", "stop_now", "cancel", "platform"]


class Exit(Settings):
    """How one attempt ended: `attempts/<k>/exit.json`."""

    attempt: int
    exit_code: int
    """Of the engine's process; 128 + number where a signal ended it."""
    signal: str | None = None
    """Signal that ended the engine's process, such as `SIGKILL`."""
    stopped_by: StoppedBy | None = None
    """Who asked it to end: a control request, the platform's `cancel`, a signal from outside."""
    reason: str = ""
    started_at: float
    """Seconds since 1970."""
    ended_at: float
    next_attempt: int | None = None
    """The attempt that the job runner starts by itself after this one."""
    last_lines: tuple[str, ...] = ()
    """The end of what the engine said on stderr."""

    @property
    def wall_s(self) -> float:
        """Seconds it took."""
        return max(0.0, self.ended_at - self.started_at)


class Failure(Settings):
    """What went wrong, and what to do."""

    message: str
    fix: str


class CheckpointRef(Settings):
    """The checkpoint a run ends with."""

    path: str
    sha256: str


class Result(Settings):
    """The finish line of a run: `result.json`."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    status: Literal["completed", "stopped", "failed", "lost"]
    reason: str = ""
    error: Failure | None = None
    attempts: int
    """Number of the last attempt this result covers; a later one makes it void."""
    steps: int | None = None
    """Batches learned from."""
    baseline: JsonValue = None
    final: JsonValue = None
    difference: JsonValue = None
    checkpoint: CheckpointRef | None = None
    wall_s: float = 0.0
    """Seconds over all attempts."""
    cost: JsonValue = None
    details: dict[str, JsonValue] = {}
    """What else the engine's summary says."""


_NAMED = ("steps", "baseline", "final", "difference", "cost")


def read_exit(run: RunDirectory, attempt: int) -> Exit | None:
    """How the attempt ended; None: it has not, or nobody could write it down."""
    document = read_document_if_any(run.attempt(attempt) / "exit.json")
    return None if document is None else Exit.read(document)


def write_exit(run: RunDirectory, ending: Exit) -> None:
    """Write `exit.json` of the attempt."""
    write_document(run.attempt(ending.attempt) / "exit.json", ending)


def read_result(run: RunDirectory) -> Result | None:
    """The run's result; None: there is none, or a later attempt has begun since."""
    result = last_result(run)
    latest = max(run.attempts(), default=0)
    return None if result is None or result.attempts < latest else result


def last_result(run: RunDirectory) -> Result | None:
    """What `result.json` says, though a later attempt may have made it void."""
    if not run.result_path.exists():
        return None
    document = read_document(run.result_path)
    require_known_schema(document, run.result_path)
    return Result.read(document)


def write_result(run: RunDirectory) -> Result:
    """Compose the run's result from what its last attempt left, and write it."""
    result = compose_result(run)
    write_document(run.result_path, result)
    return result


def compose_result(run: RunDirectory) -> Result:
    """The result that the run's files amount to now; `lost` without an exit file."""
    attempts = run.attempts()
    attempt = max(attempts, default=0)
    ending = read_exit(run, attempt)
    summary = read_document_if_any(run.attempt(attempt) / "summary.json") or {}
    status, reason, error = _verdict(run, attempt, ending, summary)
    steps = summary["steps"] if "steps" in summary else _steps_recorded(run)
    endings = [read_exit(run, number) for number in attempts]
    rest = {
        name: value
        for name, value in summary.items()
        if name not in ("status", "reason", "checkpoint", *_NAMED)
    }
    return Result(
        run_id=run.run_id,
        status=status,
        reason=reason,
        error=error,
        attempts=attempt,
        checkpoint=_checkpoint(run, summary),
        wall_s=sum(ending.wall_s for ending in endings if ending is not None),
        details=rest,
        **{**{name: summary.get(name) for name in _NAMED}, "steps": steps},
    )


_Verdict = tuple[Literal["completed", "stopped", "failed", "lost"], str, Failure | None]


def _verdict(
    run: RunDirectory, attempt: int, ending: Exit | None, summary: dict[str, Any]
) -> _Verdict:
    if ending is None:
        return (
            "lost",
            "the job is gone and left no exit file",
            Failure(
                message=f"attempt {attempt} was killed, or its machine went down",
                fix=f"resume it: training-gym runs resume {run.run_id}",
            ),
        )
    reported = read_document_if_any(run.attempt(attempt) / "error.json")
    if summary.get("status") == "completed" and reported is None:
        # It had done and closed everything: whatever ended the process came too late to matter.
        return "completed", str(summary.get("reason") or "finished"), None
    if ending.exit_code == 0 and not (summary or reported or ending.stopped_by):
        job = read_document_if_any(run.attempt(attempt) / "job.json") or {}
        if job.get("leaves_summary"):
            return _vanished(run)
    if ending.exit_code == 0:
        given = summary.get("status", "stopped" if ending.stopped_by else "completed")
        status: Literal["completed", "stopped"] = "stopped" if given == "stopped" else "completed"
        return status, str(summary.get("reason") or ending.reason), None
    if reported is not None:
        failure = Failure(
            message=str(reported.get("message", ending.reason)), fix=str(reported.get("fix", ""))
        )
        return "failed", failure.message, failure
    if ending.stopped_by is not None:
        return "stopped", ending.reason, None
    return "failed", ending.reason, _crash(run, ending)


def _vanished(run: RunDirectory) -> _Verdict:
    message = "something ended the engine's process with exit code 0 in the middle of its work"
    fix = (
        "look for os._exit() in environments, tools and the libraries they use; read what it said: "
        f"training-gym runs logs {run.run_id}"
    )
    return "failed", message, Failure(message=message, fix=fix)


def _crash(run: RunDirectory, ending: Exit) -> Failure:
    said = next((line for line in reversed(ending.last_lines) if line.strip()), "")
    fix = f"read what it said: training-gym logs {run.run_id}"
    if ending.signal == "SIGKILL":
        fix = "most likely memory ran out: use a smaller batch or model; " + fix
    return Failure(message=f"{ending.reason}: {said}" if said else ending.reason, fix=fix)


def _checkpoint(run: RunDirectory, summary: dict[str, Any]) -> CheckpointRef | None:
    named = summary.get("checkpoint")
    if isinstance(named, dict) and {"path", "sha256"} <= named.keys():
        return CheckpointRef(path=str(named["path"]), sha256=str(named["sha256"]))
    newest, _ = latest_valid(run)
    if newest is None:
        return None
    return CheckpointRef(path=str(newest.folder), sha256=newest.sha256)


def _steps_recorded(run: RunDirectory) -> int | None:
    newest = last_record(run, "metrics")
    return None if newest is None else newest["batch"]
