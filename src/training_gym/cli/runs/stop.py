"""`training-gym runs stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId


def stop(
    run_id: RunId,
    now: Annotated[
        bool, typer.Option("--now", help="End at once; what followed the last checkpoint is lost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a run to save a checkpoint and end."""
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    before = run.status
    active = before in ("queued", "running")
    if active:
        run.stop(now=now)
    if as_json:
        output.emit("runs.stop/1", run_id=run.id, status=before, asked=active, now=now)
        return
    output.data(run.id)
    if not active:
        output.say(f"it has ended already: {before}")
    elif now:
        output.say(f"asked to end at once; resume with: training-gym runs resume {run.id}")
    else:
        output.say("asked to finish its step and save a checkpoint")
        output.say(f"wait for it: training-gym runs wait {run.id}")
