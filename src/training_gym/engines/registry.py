"""Engines by name: built in, or from packages that declare the entry-point group."""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points

from training_gym.spec.engine import Engine
from training_gym.spec.errors import EngineError, did_you_mean

GROUP = "training_gym.engines"
"""Entry-point group under which a package declares `name = "module:Class"`."""

_BUILT_IN = {"local": "training_gym.engines.local.engine:LocalEngine"}


def names() -> list[str]:
    """Names of all engines there are."""
    return sorted({*_BUILT_IN, *entry_points(group=GROUP).names})


def find(name: str) -> Engine:
    """The engine of that name, made without arguments; raises `EngineError`."""
    # Our own come first: they work from a source tree, and no package takes their names.
    address = _BUILT_IN.get(name) or _declared(name)
    if address is None:
        raise EngineError(f"no engine is called {name!r}", fix=did_you_mean(name, names()))
    module, _, attribute = address.partition(":")
    try:
        engine: Engine = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise EngineError(
            f"engine {name!r} ({address}) cannot be loaded: {error}",
            fix="install or repair the package that declares it",
        ) from error
    return engine


def _declared(name: str) -> str | None:
    found: list[EntryPoint] = list(entry_points(group=GROUP, name=name))
    return found[0].value if found else None
