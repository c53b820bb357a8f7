"""`training-gym runs fork`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId


def fork(
    run_id: RunId,
    step: Annotated[
        int | None,
        typer.Option("--step", min=0, help="Optimizer step of the checkpoint; default: newest."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the recipe, such as recipe.optimizer.learning_rate=1e-6.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the run goes on by itself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a new run that goes on from any checkpoint of another.

    It takes up optimizer, counters and place in the data: with nothing changed it computes what
    the first run would have.
    """
    from training_gym.cli.finish import finish, started
    from training_gym.cli.following import follow
    from training_gym.cli.output import say
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id).fork(step, sets=sets or (), say=say)
    if detach:
        started(run, as_json=as_json)
        return
    say(f"run {run.id}")
    interrupted = follow(run)
    finish(run, as_json=as_json, interrupted=interrupted)
