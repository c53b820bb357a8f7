"""`training-gym runs wait`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId


def wait(
    run_id: RunId,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Give up waiting after so long.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until a run has ended.

    The exit code says how. Ctrl-C ends the waiting, not the run.
    """
    from training_gym.cli.finish import finish
    from training_gym.cli.following import follow
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    follow(run, timeout_s=timeout, forward_interrupts=False)
    finish(run, as_json=as_json)
