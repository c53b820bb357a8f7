"""Engines by name."""

from __future__ import annotations

from training_gym.spec.engine import Engine
from training_gym.spec.errors import EngineError
from training_gym.spec.plugins import load_plugin

BUILT_IN = {"local": "training_gym.engines.local.engine:LocalEngine"}


def find_engine(kind: str) -> Engine:
    """The engine that `recipe.engine.kind` names; raises `EngineError`."""
    engine: Engine = load_plugin("training_gym.engines", kind, BUILT_IN, EngineError)
    return engine
