"""`training-gym export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId

FORMATS = ("html", "csv", "parquet", "chrome", "atif", "otlp")

MOST_NAMED = 100
"""Files that are named; atif writes one for each episode."""


def export(
    run_id: RunId,
    format: Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}.")] = "html",
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to; else export-RUN here.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With otlp: post to this receiver's /v1/traces."),
    ] = None,
    content: Annotated[
        bool, typer.Option("--content", help="With --endpoint: also what was said.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a run in another format.

    html: one page to send to a colleague. csv, parquet: metrics, episodes and spans as tables.
    chrome: a trace for Perfetto. atif: a trajectory file for each episode. otlp: OpenTelemetry
    GenAI spans, which --endpoint posts instead.
    """
    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.cli.views.common import open_index, run_id_of
    from training_gym.records.export import FORMATS, export_run
    from training_gym.spec.errors import did_you_mean

    chosen = next((known for known in FORMATS if known == format), None)
    if chosen is None:
        raise UsageError(f"no format is called {format!r}", fix=did_you_mean(format, FORMATS))
    run = run_id_of(run_id)
    if endpoint is not None:
        _post(run, chosen, endpoint, content=content, as_json=as_json)
        return
    files = export_run(open_index(), run, chosen, to or Path(f"export-{run}"))
    if as_json:
        named = [str(file) for file in files[:MOST_NAMED]]
        output.emit("export/1", run_id=run, format=chosen, files=named, num_files=len(files))
        return
    if not files:
        output.say(f"{run} has nothing that could be written as {chosen}")
    for file in files[:MOST_NAMED]:
        output.data(str(file))
    if len(files) > MOST_NAMED:
        output.say(f"and {len(files) - MOST_NAMED} more beside them")


def _post(run: str, format: str, endpoint: str, *, content: bool, as_json: bool) -> None:
    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.cli.views.common import open_index
    from training_gym.records.export.otlp import post_otlp

    if format != "otlp":
        raise UsageError(f"--endpoint is not for {format}", fix="add --format otlp")
    count = post_otlp(open_index(), run, endpoint, content=content)
    if as_json:
        output.emit("export/1", run_id=run, format=format, files=[], num_files=0)
        return
    output.say(f"posted in {count} requests to {endpoint}")
