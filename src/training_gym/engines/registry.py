"""Engines by name: built in, or from packages that declare the entry-point group."""

from __future__ import annotations

from training_gym.spec.engine import Engine
from training_gym.spec.errors import EngineError
from training_gym.spec.plugins import Plugins

GROUP = "training_gym.engines"
"""Entry-point group under which a package declares `name = "module:Class"`."""

_PLUGINS = Plugins(
    "engine", GROUP, {"local": "training_gym.engines.local.engine:LocalEngine"}, EngineError
)


def names() -> list[str]:
    """Names of all engines there are."""
    return _PLUGINS.names()


def find(name: str) -> Engine:
    """The engine of that name, made without arguments; raises `EngineError`."""
    engine: Engine = _PLUGINS.make(name)
    return engine
