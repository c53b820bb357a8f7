"""What the rules need to know of a run's definition, from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_gym.records.health.history import SINGLE_TURN, Facts
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError
from training_gym.spec.health import Health


def facts_of(run: RunDirectory) -> Facts:
    """Read leniently: manifests of other versions and engines may lack any of it."""
    spec = _mapping(run.manifest.run)
    recipe = _mapping(spec.get("recipe"))
    algorithm = _mapping(recipe.get("algorithm"))
    updates = _whole(recipe.get("optimizer_steps_per_batch")) or 1
    passes = _whole(algorithm.get("passes")) or 1
    parts = [_mapping(part) for part in _mapping(spec.get("reward")).get("parts") or ()]
    environment = _mapping(spec.get("environment"))
    bound = recipe.get("max_staleness", recipe.get("staleness"))
    return Facts(
        environment=str(environment.get("ref") or SINGLE_TURN).rpartition(":")[2],
        weights={str(part.get("name")): float(part.get("weight", 1.0)) for part in parts},
        updates_per_batch=updates * passes,
        staleness_bound=float(bound) if isinstance(bound, int | float) else None,
        max_response_tokens=_whole(recipe.get("max_response_tokens")),
        num_steps=_whole(recipe.get("num_steps")),
    )


def health_of(run: RunDirectory) -> Health:
    """The thresholds the run was started with; the usual ones where it names none we know."""
    try:
        return Health.read(run.manifest.run.get("health") or {})
    except GymError:
        return Health()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
