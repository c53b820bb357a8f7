"""Whether what a run was launched with is still what lies in its directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError
from training_gym.spec.plan import Plan
from training_gym.spec.run import RunSpec


def require_unchanged(run: RunDirectory, plan: Plan) -> None:
    """Raise `RecordsError` if the plan says other things than the run's manifest.

    A resume goes on with what was launched, or not at all: half a training with one definition and
    half with another would be neither.
    """
    launched = RunSpec.read(run.manifest.run)
    if launched == plan.run:
        return
    path, before, now = _first_difference(
        launched.model_dump(mode="json"), plan.run.model_dump(mode="json")
    )
    raise RecordsError(
        f"{run.plan_path} has {path} = {now!r:.60}, but run {run.run_id} was launched with "
        f"{before!r:.60}",
        fix="put that back; to train on with other settings, start a run with "
        "resume_from_checkpoint=…",
    )


def _first_difference(one: Any, other: Any, path: str = "") -> tuple[str, Any, Any]:
    """Where two JSON values differ, as a dotted path, and what each has there."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in (*one, *(name for name in other if name not in one)):
            if one.get(name) != other.get(name):
                inner = f"{path}.{name}" if path else name
                return _first_difference(one.get(name), other.get(name), inner)
    return path, one, other
