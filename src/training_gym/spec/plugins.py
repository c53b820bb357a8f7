"""Engines and platforms found by name: our own, and third parties' by entry point."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from training_gym.spec.errors import GymError, did_you_mean


def load_plugin(group: str, name: str, built_in: Mapping[str, str], error: type[GymError]) -> Any:
    """A new instance of the class called `name`.

    Args:
        group: Entry-point group that third parties register in, such as `training_gym.engines`.
        name: The wanted one.
        built_in: Ours, as `module:class`; they win over entry points of the same name.
        error: Raised if there is none of that name, or it cannot be imported.
    """
    word = group.rpartition(".")[2].removesuffix("s")
    found = {point.name: point.value for point in importlib.metadata.entry_points(group=group)}
    known = {**found, **built_in}
    if name not in known:
        raise error(f"no {word} is called {name!r}", fix=did_you_mean(name, known))
    module, _, attribute = known[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except ModuleNotFoundError as missing:
        raise error(
            f"the {word} {name!r} needs {missing.name}, which is not installed",
            fix=f"pip install 'training-gym[{name}]'",
        ) from missing
