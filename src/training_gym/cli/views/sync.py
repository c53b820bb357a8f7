"""`training-gym sync` and `training-gym import`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, RunId

if TYPE_CHECKING:
    from training_gym.records.remote import Shipper
    from training_gym.records.run_directory import RunDirectory
    from training_gym.runs import Run

COLLECTOR = "collector"

POLL_S = 5.0
"""How often `--follow` looks for something new."""


def sync(
    run_id: RunId,
    to: Annotated[
        str,
        typer.Option(help="wandb, trackio, tensorboard or mlflow; or collector, for all of it."),
    ],
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
    """Hand a run's metrics to another tracker, or its records to a collector.

    Each point once: a second time, only what is new. Training never waits for this. A collector is
    the one the run was started with, or that of $TRAINING_GYM_COLLECTOR.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    count = 0
    with _taker(run, to, project, folder or Path(to), everything=everything) as hand_over:
        while True:
            ended = run.status not in ("queued", "running")  # before reading
            count += hand_over()
            if ended or not follow:
                break
            time.sleep(POLL_S)
    if as_json:
        output.emit("sync/1", run_id=run.id, to=to, project=project, records=count)
        return
    output.data(run.id)
    output.say(f"{count} records handed to {to}")


@contextmanager
def _taker(
    run: Run, to: str, project: str, folder: Path, *, everything: bool
) -> Iterator[Callable[[], int]]:
    """What hands over all that is new; it says how many records that was."""
    from training_gym.cli.runs.lookup import files_of
    from training_gym.records.sinks import Feeder, SinkRun, open_sink
    from training_gym.spec.home import cache_directory

    files = files_of(run)
    if to == COLLECTOR:
        with closing(_shipper(files)) as shipper:
            yield shipper.ship
        return
    sink = open_sink(to, SinkRun.of(files), project, folder)
    state = cache_directory() / "sinks" / f"{run.id}.{to}.{project.replace('/', '_')}.json"
    try:
        yield Feeder(files, sink, state, everything=everything).feed
    finally:
        sink.close()


def _shipper(files: RunDirectory) -> Shipper:
    """Of the run's own collector; a run without one is registered with the environment's."""
    import os

    from training_gym.records import remote
    from training_gym.spec.errors import RecordsError

    link = remote.Link.of(files)
    if link is None:
        link = remote.asked_for(files.manifest, os.environ)
        if link is None:
            raise RecordsError(
                f"run {files.run_id} has no collector",
                fix="set TRAINING_GYM_COLLECTOR and its token as training-gym collect prints them",
            )
        link.keep(files)
    return remote.Shipper(files, link)


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
