"""The environment of a job's process: inherited, but secrets only by name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from training_gym.records.run_directory import RunDirectory
from training_gym.spec.code import INSIDE_JOB
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Job

RUN = "TRAINING_GYM_RUN"
"""Path of the run directory, in every process of a job."""
ATTEMPT = "TRAINING_GYM_ATTEMPT"
"""Number of the attempt, in every process of a job."""

_SECRET = re.compile(
    r"(^|_)(tokens?|secrets?|passwords?|passwd|credentials?|(api|access|private|secret)_?keys?)"
    r"($|_)",
    re.IGNORECASE,
)


def require_secrets(job: Job, environ: Mapping[str, str]) -> None:
    """Raise `PlatformError` unless every secret the job names is set."""
    missing = [name for name in job.secrets if name not in environ]
    if missing:
        raise PlatformError(
            f"secret {missing[0]!r} is not set in this environment",
            fix=f"export {missing[0]}=…, or take it out of secrets",
        )


def withheld(job: Job, environ: Mapping[str, str]) -> list[str]:
    """Names of variables that look like secrets and that the job does not name."""
    return sorted(name for name in environ if _SECRET.search(name) and name not in job.secrets)


def inherited(job: Job, environ: Mapping[str, str]) -> dict[str, str]:
    """What a job's processes inherit: nothing withheld, and nothing of a job around them."""
    kept_out = {*withheld(job, environ), INSIDE_JOB, RUN, ATTEMPT}
    return {name: value for name, value in environ.items() if name not in kept_out}


def engine_environment(
    job: Job, run: RunDirectory, attempt: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """What the engine's process gets: inherited, then the job's own, then ours."""
    given = {**inherited(job, environ), **job.env}
    paths = [str(run.source), given.get("PYTHONPATH", "")]
    return {
        **given,
        INSIDE_JOB: "1",
        RUN: str(run.path),
        ATTEMPT: str(attempt),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": ":".join(path for path in paths if path),
    }
