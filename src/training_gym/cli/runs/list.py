"""`training-gym runs list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_gym.cli.options import AsJson, Limit

if TYPE_CHECKING:
    from training_gym.records.status import RunSummary


def list_runs(
    status: Annotated[
        str | None,
        typer.Option(help="Only queued, running, completed, stopped, failed or lost ones."),
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from training_gym.cli import output
    from training_gym.records.status import list_runs as read_runs
    from training_gym.spec.home import runs_directory

    _require_status(status)
    found = [run for run in read_runs(runs_directory()) if status in (None, run.status)]
    shown = found[:limit]
    if as_json:
        output.emit(
            "runs.list/1",
            runs=[_fields(run) for run in shown],
            omitted=len(found) - len(shown),
        )
        return
    rows = [_fields(run) for run in shown]
    output.table(
        ["run", "status", "created (UTC)", "name", "model"],
        [
            (
                row["run_id"],
                row["problem"] or row["status"],
                (row["created_at"] or "–")[:16].replace("T", " "),
                row["name"],
                row["model"],
            )
            for row in rows
        ],
    )
    if len(found) > len(shown):
        output.say(f"{len(found) - len(shown)} older runs left out: raise --limit to see them")
    if not found:
        output.say("no runs: start one with training-gym quickstart")


def _fields(run: RunSummary) -> dict[str, Any]:
    created = datetime.fromtimestamp(run.created_at, UTC) if run.created_at else None
    return {
        "run_id": run.run_id,
        "status": run.status,
        "created_at": None if created is None else created.isoformat(timespec="seconds"),
        "name": run.name,
        "model": run.model,
        "tags": list(run.tags),
        "path": str(run.path),
        "problem": run.problem,
    }


def _require_status(status: str | None) -> None:
    from typing import get_args

    from training_gym.cli.failures import UsageError
    from training_gym.records.status import RunStatus
    from training_gym.spec.errors import did_you_mean

    known = get_args(RunStatus)
    if status is not None and status not in known:
        raise UsageError(f"no run has the status {status!r}", fix=did_you_mean(status, known))
