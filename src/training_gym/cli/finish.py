"""How a command that started or awaited a run tells of it, and the exit code that says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from training_gym.cli.program import dashboard_command, program

if TYPE_CHECKING:
    from training_gym.records.results import Result
    from training_gym.runs import Run


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

    result = run.wait()
    if result.status not in ("completed", "stopped"):
        raise failure(run, result)
    fields = ending(run)
    if as_json:
        output.emit("runs.result/1", **fields)
        if result.status == "stopped":
            output.say(how_to_resume(run.id))
    else:
        output.data(run.id)
        for line in told(fields):
            output.say(line)
    if result.status == "stopped":
        raise typer.Exit(INTERRUPTED if interrupted else RUN_STOPPED)


def ending(run: Run) -> dict[str, Any]:
    """The fields of `runs.result/1`, also of a run that goes on."""
    result = run.result
    return {
        "run_id": run.id,
        "status": run.status,
        "reason": result.reason if result else "",
        "steps": result.steps if result else None,
        "evaluations": result.details.get("evaluations", {}) if result else {},
        "checkpoint": result.checkpoint.path if result and result.checkpoint else None,
        "wall_s": result.wall_s if result else None,
        "path": str(run.path),
    }


def how_to_resume(run_id: str) -> str:
    """What to type to go on with a stopped run."""
    return f"resume with: training-gym runs resume {run_id}"


def failure(run: Run, result: Result) -> Exception:
    """The error that ended the run: the user's own with its exit code, or that the run failed."""
    from training_gym.cli.failures import RunFailed, RunLost
    from training_gym.cli.runs.lookup import files_of
    from training_gym.records.documents import read_document_if_any

    said = result.error
    message = said.message if said else f"run {run.id} {result.status}: {result.reason}"
    fix = (said.fix if said else "") or f"see training-gym logs {run.id}"
    if result.status == "lost":
        return RunLost(message, fix=fix, run_id=run.id)
    reported = read_document_if_any(files_of(run).attempt(result.attempts) / "error.json") or {}
    return RunFailed(
        message,
        fix=fix,
        run_id=run.id,
        kind=reported.get("type"),
        exit_code=reported.get("exit_code"),
    )


def told(fields: dict[str, Any]) -> list[str]:
    """How a run ended, in lines for people."""
    from training_gym.cli.output import number, span

    steps = "" if fields["steps"] is None else f" after {fields['steps']} steps"
    lines = [f"{fields['status']}{steps} in {span(fields['wall_s'] or 0)}"]
    if fields["status"] == "completed" and fields["reason"] not in ("", "finished"):
        lines.append(f"warning: {fields['reason']}")
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
        lines.append(how_to_resume(fields["run_id"]))
    else:
        lines.append(f"what it wrote: {program()} episodes {fields['run_id']}")
        lines.append(f"look at it in the browser: {dashboard_command()}")
    return lines
