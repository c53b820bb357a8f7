"""Where to run, as values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from training_gym.spec.errors import SpecError, did_you_mean
from training_gym.spec.settings import Settings


class LocalTarget(Settings):
    """A detached process on this machine."""

    kind: Literal["local"] = "local"


TARGETS: dict[str, type[Settings]] = {"local": LocalTarget}


def _as_target(value: Any) -> Any:
    if value is None:
        return LocalTarget()
    if isinstance(value, str):
        if value not in TARGETS:
            raise SpecError(f"no platform is called {value!r}", fix=did_you_mean(value, TARGETS))
        return TARGETS[value]()
    return value


ComputeSpec = Annotated[LocalTarget, BeforeValidator(_as_target)]
"""A field that takes a compute target or the name of a platform."""
