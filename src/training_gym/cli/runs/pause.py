"""`training-gym runs pause`."""

from __future__ import annotations

from training_gym.cli.options import AsJson, RunId


def pause(run_id: RunId, as_json: AsJson = False) -> None:
    """Ask a run to hold after its step, keeping what it has in memory.

    `runs resume` lets it go on. To free the machine, stop it instead.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    run.pause()
    if as_json:
        output.emit("runs.pause/1", run_id=run.id, status=run.status)
        return
    output.data(run.id)
    output.say(f"asked to hold after its step; let it go on: training-gym runs resume {run.id}")
