"""`training-gym sync` and `training-gym import`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId

POLL_S = 5.0
"""How often `--follow` looks for something new."""


def sync(
    run_id: RunId,
    to: Annotated[str, typer.Option(help="wandb, trackio, tensorboard or mlflow.")],
    project: Annotated[str, typer.Option(help="Project, or experiment.")] = "training-gym",
    folder: Annotated[
        Path | None, typer.Option(help="For trackers that write files; else SINK here.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every metric, not just the curated ones.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Hand a run's metrics to another tracker.

    Each point once: a second time, only what is new. Training never waits for this.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.records.sinks import Feeder, SinkRun, open_sink
    from training_gym.spec.home import cache_directory

    run = find_run(run_id)
    files = files_of(run)
    sink = open_sink(to, SinkRun.of(files), project, folder or Path(to))
    state = cache_directory() / "sinks" / f"{run.id}.{to}.{project.replace('/', '_')}.json"
    feeder = Feeder(files, sink, state, everything=everything)
    count = 0
    try:
        while True:
            ended = run.status not in ("queued", "running")  # before reading
            count += feeder.feed()
            if ended or not follow:
                break
            time.sleep(POLL_S)
    finally:
        sink.close()
    if as_json:
        output.emit("sync/1", run_id=run.id, to=to, project=project, records=count)
        return
    output.data(run.id)
    output.say(f"{count} records handed to {to}")


def import_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="tensorboard or wandb.")],
    source: Annotated[Path, typer.Argument(metavar="PATH", help="Folder of one run.")],
    run_id: Annotated[str | None, typer.Option("--id", help="Id of the new run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take over the numbers of a TensorBoard or wandb offline run, to compare with."""
    from training_gym.cli import output
    from training_gym.records.imports import import_run
    from training_gym.spec.home import runs_directory

    run = import_run(kind, source, runs_directory(), run_id=run_id)
    if as_json:
        output.emit("import/1", run_id=run.run_id, kind=kind, path=str(run.path))
        return
    output.data(run.run_id)
