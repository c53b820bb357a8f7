"""`training-gym runs wait`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, RunId

if TYPE_CHECKING:
    from training_gym.runs import Run

POLL_S = 0.5
"""How often a condition is tried."""


def wait(
    run_id: RunId,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Give up waiting after so long.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Wait for this instead, such as: reward_mean > 0.8 and step >= 20",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until a run has ended, or until a condition on its metrics and status holds.

    The exit code says how it ended. Conditions compare metrics (also mean(name, 10), max(name),
    min(name)) and status, level, step, reward, cost with and, or, not. Ctrl-C ends the waiting,
    not the run.
    """
    from training_gym.cli.finish import finish
    from training_gym.cli.following import follow
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    if until is not None:
        _until(run, until, timeout, as_json=as_json)
        return
    follow(run, timeout_s=timeout, forward_interrupts=False)
    finish(run, as_json=as_json)


def _until(run: Run, text: str, timeout_s: float | None, *, as_json: bool) -> None:
    """Wait for a condition; raises `WaitTimeout`, or `EndedBefore` where it cannot come true."""
    from training_gym.cli import output
    from training_gym.cli.failures import EndedBefore, WaitTimeout
    from training_gym.cli.views.common import emit_value, open_index
    from training_gym.records.index.conditions import RunFacts, parse

    condition, index = parse(text), open_index()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        ended = run.status not in ("queued", "running")  # before looking: nothing comes after it
        if condition(RunFacts(index, run.id)):
            break
        if ended:
            raise EndedBefore(
                f"run {run.id} has ended: {run.status}; {text!r} never held",
                fix=f"see training-gym status {run.id}",
            )
        if deadline is not None and time.monotonic() >= deadline:
            raise WaitTimeout(
                f"{text!r} does not hold after {timeout_s:g} s", fix="wait longer with --timeout"
            )
        time.sleep(POLL_S)
    row = index.overview(run.id).row
    if as_json:
        emit_value("status/1", row)
        return
    output.data(run.id)
    output.say(f"{text} holds at step {row.step}: {row.verdict}")
