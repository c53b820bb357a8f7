"""How a command that started or awaited a run tells of it, and the exit code that says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from training_gym.launch import Run


def started(run: Run, *, as_json: bool) -> None:
    """Tell of a run that goes on by itself."""
    from training_gym.cli import output

    if as_json:
        output.emit("runs.started/1", run_id=run.id, status=run.status, path=str(run.path))
        return
    output.data(run.id)
    output.say(f"wait for it: training-gym runs wait {run.id}")
    output.say(f"stop it: training-gym runs stop {run.id}")


def finish(run: Run, *, as_json: bool, interrupted: bool = False) -> None:
    """Tell how a run ended; raises for one that failed, exits with a code for one stopped."""
    from training_gym.cli import output
    from training_gym.cli.failures import INTERRUPTED, RUN_STOPPED

    fields = ending(run)
    if fields["status"] not in ("completed", "stopped"):
        raise failure(run)
    if as_json:
        output.emit("runs.result/1", **fields)
    else:
        output.data(run.id)
        for line in told(fields):
            output.say(line)
    if fields["status"] == "stopped":
        raise typer.Exit(INTERRUPTED if interrupted else RUN_STOPPED)


def ending(run: Run) -> dict[str, Any]:
    """The fields of `runs.result/1`."""
    result = run.result
    found = {} if result is None else result.model_dump(mode="json")
    return {
        "run_id": run.id,
        "status": run.status,
        "reason": found.get("reason", ""),
        "steps": found.get("steps"),
        "evaluations": found.get("details", {}).get("evaluations", {}),
        "checkpoint": (found.get("checkpoint") or {}).get("path"),
        "wall_s": found.get("wall_s"),
        "path": str(run.path),
    }


def failure(run: Run) -> Exception:
    """The error that ended the run: the user's own with its exit code, or that the run failed."""
    from training_gym.cli.failures import RunFailed, RunLost
    from training_gym.cli.runs.lookup import files_of
    from training_gym.records.documents import read_document_if_any

    files = files_of(run)
    said = run.result.error if run.result is not None else None
    if run.status == "lost":
        return RunLost(
            f"run {run.id} vanished without a word: killed, or the machine went down",
            fix=f"resume it: training-gym runs resume {run.id}",
            run_id=run.id,
        )
    reported = read_document_if_any(files.attempt(max(files.attempts())) / "error.json") or {}
    return RunFailed(
        said.message if said else f"run {run.id} failed",
        fix=(said.fix if said else "") or f"see training-gym runs logs {run.id}",
        run_id=run.id,
        kind=reported.get("type"),
        exit_code=reported.get("exit_code"),
    )


def told(fields: dict[str, Any]) -> list[str]:
    """How a run ended, in lines for people."""
    from training_gym.cli.output import number, span

    steps = "" if fields["steps"] is None else f" after {fields['steps']} steps"
    lines = [f"{fields['status']}{steps} in {span(fields['wall_s'] or 0)}"]
    for name, found in fields["evaluations"].items():
        change = found["difference"]
        lines.append(
            f"{name}: {number(found['baseline']['mean'])} → {number(found['final']['mean'])}, "
            f"difference {number(change['mean'])} "
            f"(95 % {number(change['low'])} to {number(change['high'])})"
        )
    if fields["checkpoint"]:
        lines.append(f"checkpoint: {fields['checkpoint']}")
    if fields["status"] == "stopped":
        lines.append(f"resume with: training-gym runs resume {fields['run_id']}")
    else:
        lines.append(f"look at it: training-gym runs episodes {fields['run_id']}")
    return lines
