"""Tiny real models for tests and smoke runs, without importing torch until one is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def tiny_model(path: Path | str, family: str = "llama", **options: Any) -> Path:
    """Write a tiny model folder; see `training_gym.models.weights.tiny.tiny_model`."""
    from training_gym.models.weights import tiny

    return tiny.tiny_model(path, family, **options)
