"""`training-gym runs gc`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson


def gc(
    runs_older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Delete runs that ended so long ago."),
    ] = None,
    keep_tag: Annotated[
        list[str] | None, typer.Option(help="Runs with this tag are kept; default: keep.")
    ] = None,
    checkpoints: Annotated[
        int | None, typer.Option(min=1, help="Keep the newest so many checkpoints of each run.")
    ] = None,
    resume_older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Delete optimizer states of completed runs."),
    ] = None,
    episodes_older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Delete episodes of runs that ended so long ago."),
    ] = None,
    logs_older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Delete logs of runs that ended so long ago."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Do it; else it is only said what would go.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what of old runs could be deleted, and with --delete, delete it.

    Without other options only half-written checkpoints are. Running runs are never touched, nor
    the checkpoint that a run ended with or that another run started from.
    """
    from training_gym.cli import output
    from training_gym.cli.views.common import open_index
    from training_gym.records.index import RunQuery
    from training_gym.records.retention import Retention, RunTags, plan_removals, remove
    from training_gym.records.run_directory import RunDirectory

    policy = Retention(
        runs_days=runs_older,
        keep_tags=tuple(keep_tag) if keep_tag else ("keep",),
        checkpoints=checkpoints,
        resume_days=resume_older,
        episodes_days=episodes_older,
        logs_days=logs_older,
    )
    index = open_index()
    runs = [
        RunTags(RunDirectory(index.folder / row.run_id), row.tags)
        for row in index.runs(RunQuery(limit=10_000)).runs
        if not row.problem
    ]
    removals = plan_removals(runs, policy)
    size = sum(removal.size for removal in removals)
    if delete:
        remove(removals)
    if as_json:
        output.emit(
            "runs.gc/1",
            removals=[
                {"path": str(one.path), "bytes": one.size, "why": one.why} for one in removals
            ],
            bytes=size,
            deleted=delete,
        )
        return
    for removal in removals:
        output.data(f"{removal.path}\t{removal.size}\t{removal.why}")
    verb = "deleted" if delete else "would be deleted: repeat with --delete"
    output.say(f"{len(removals)} things, {size / 1e6:.1f} MB, {verb}")
