"""`training-gym train`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson


def train(
    definition: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:NAME]",
            help="File (or package.module) that defines the run, and which of its definitions "
            "if it has several.",
        ),
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change one value, such as recipe.num_steps=3."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and plan, show what would run, start nothing.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the run goes on by itself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train what a file defines.

    Ctrl-C finishes the step and saves a checkpoint; pressed again, it ends at once.
    """
    from training_gym.cli import output
    from training_gym.cli.finish import finish, started
    from training_gym.cli.following import follow
    from training_gym.launch import apply_sets, load_definition, prepare, submit

    with output.patience(f"checking {definition}: the checks try the reward and read the model"):
        config = apply_sets(load_definition(definition), sets or ())
        if dry_run:
            from training_gym.cli.dry_run import show_plan

            show_plan(config, as_json=as_json)
            return
        run = submit(prepare(config, say=output.say))
    if detach:
        started(run, as_json=as_json)
        return
    output.say(f"run {run.id}")
    interrupted = follow(run)
    finish(run, as_json=as_json, interrupted=interrupted)
