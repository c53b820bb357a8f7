"""What wraps the engine's command on a node: `python -m training_gym.jobs.inside --run DIR`.

Runs in an image that may hold nothing of ours but this wheel: standard library and pydantic only.
It unpacks the source, starts the engine, turns its output into records, beats, obeys control
requests, restarts what crashed, and leaves `exit.json` and `result.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from training_gym.jobs.environment import inherited, withheld
from training_gym.jobs.runner import JobRunner, claim
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError


def main(arguments: list[str] | None = None) -> int:
    """Run one attempt of a job and those it restarts by itself; returns the engine's exit code."""
    parser = argparse.ArgumentParser(prog="training_gym.jobs.inside", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    parser.add_argument("--attempt", type=int, required=True, help="number of the attempt")
    parser.add_argument("--group", help="node group; the job's first if left out")
    given = parser.parse_args(arguments)
    run = RunDirectory(given.run.resolve())
    try:
        job = run.job(given.attempt)
        if not claim(run, given.attempt):
            print(f"attempt {given.attempt} has a runner already", file=sys.stderr)  # noqa: T201
            return 0
        held_back = withheld(job, os.environ)
        kept = inherited(job, os.environ)
        os.environ.clear()
        os.environ.update(kept)
        return JobRunner(run, job, given.group, held_back).run_to_the_end()
    except GymError as error:
        print(error, file=sys.stderr)  # noqa: T201 - where no record can be written
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
