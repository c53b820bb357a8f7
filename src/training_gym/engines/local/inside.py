"""The engine's process inside a job: reads the plan, trains, leaves a summary or an error.

Started by the job runner as `python -m training_gym.engines.local.inside`, with the run directory
and the attempt's number in the environment.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import Any

from training_gym.records.documents import write_document
from training_gym.records.recorder import Recorder
from training_gym.records.reserve import give_up
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError
from training_gym.spec.plan import Plan

SWITCH_S = 0.001
"""Longest time in which the thread that computes, back from a kernel, waits for one that plays
episodes; Python's own 5 ms are as long as a small model's step."""


def main() -> int:
    """Train; the process's exit status."""
    run = RunDirectory(Path(os.environ["TRAINING_GYM_RUN"]))
    attempt = int(os.environ["TRAINING_GYM_ATTEMPT"])
    try:
        summary = asyncio.run(_train(run, attempt))
    except GymError as error:
        _leave_error(run, attempt, error)
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    write_document(run.attempt(attempt) / "summary.json", summary)
    return 0


async def _train(run: RunDirectory, attempt: int) -> dict[str, Any]:
    from training_gym.engines.local.assembly import assemble
    from training_gym.engines.local.requests import Requests

    _end_copies()
    plan = Plan.read_json(run.plan_path.read_bytes())
    requests = Requests()
    requests.listen()
    with Recorder(run, writer="engine", attempt=attempt) as recorder:
        async with assemble(plan, run, recorder, requests) as loop:
            sys.setswitchinterval(SWITCH_S)
            gc.freeze()  # else each full collection walks through all of torch, time and again
            return await loop.run()


def _end_copies() -> None:
    """Let no copy of this process train as well: an environment or a reward may have forked it.

    Who forks in order means to end the copy, or to become another program, before it comes back to
    this loop.
    """
    loop = asyncio.get_running_loop()
    os.register_at_fork(after_in_child=lambda: loop.call_soon(os._exit, 0))


def _leave_error(run: RunDirectory, attempt: int, error: GymError) -> None:
    document = {
        "type": type(error).__name__,
        "message": error.message,
        "fix": error.fix,
        "exit_code": error.exit_code,
    }
    give_up(run, attempt)  # a full disk may be what is to be told
    write_document(run.attempt(attempt) / "error.json", document)


if __name__ == "__main__":
    sys.exit(main())
