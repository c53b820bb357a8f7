"""`training-gym runs metrics`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import Since

WIDE = 6
"""Columns a terminal's table shows where no --name asks for others."""


def metrics(
    run_id: RunId,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only metrics like this; may be repeated."),
    ] = None,
    limit: Limit = 50,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Show the numbers a run recorded, newest last."""
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.cli.runs.paging import read_records, stamp
    from training_gym.cli.views.common import open_index, require_metrics

    run = find_run(run_id)
    files = files_of(run)
    if name and (known := [metric.name for metric in open_index().metric_names(run.id)]):
        require_metrics(name, known)
    page = read_records(files, "metrics", since=since, limit=limit)
    if as_json:
        for record in page.records:
            output.emit("runs.metrics/1", **stamp(record), values=_chosen(record, name))
        output.emit("runs.page/1", **page.closing())
        return
    if page.omitted:
        output.say(f"{page.omitted} older records left out: raise --limit to see them")
    rows = [(record, _chosen(record, name)) for record in page.records]
    names = sorted({key for _, values in rows for key in values}, key=_rank)
    if name is None and len(names) > WIDE:
        output.say(f"showing {WIDE} of {len(names)} metrics: choose with --name, or use --json")
        names = names[:WIDE]
    if name and rows and not names:
        output.say(f"none of these {len(rows)} records has {' or '.join(name)}")
        return
    output.table(
        ["batch", *names],
        [(record["batch"], *(values.get(key) for key in names)) for record, values in rows],
    )


def _chosen(record: dict[str, Any], patterns: list[str] | None) -> dict[str, Any]:
    values: dict[str, Any] = record["values"]
    if not patterns:
        return values
    return {
        key: value
        for key, value in values.items()
        if any(fnmatchcase(key, pattern) for pattern in patterns)
    }


def _rank(name: str) -> tuple[int, str]:
    """Rewards first, then losses, then the rest by name."""
    for place, word in enumerate(("reward", "loss", "tokens_per_s")):
        if word in name:
            return place, name
    return 9, name
