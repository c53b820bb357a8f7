"""`training-gym runs resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId


def resume(
    run_id: RunId,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the run goes on by itself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Go on from the newest checkpoint; a paused run simply goes on."""
    from training_gym.cli.finish import finish, started
    from training_gym.cli.following import follow
    from training_gym.cli.output import say
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    was_paused = run.is_paused
    run.resume(say=say)
    if not was_paused:
        say("going on as launched: edits made to the definition since then take a new run")
    if detach:
        started(run, as_json=as_json)
        return
    interrupted = follow(run)
    finish(run, as_json=as_json, interrupted=interrupted)
