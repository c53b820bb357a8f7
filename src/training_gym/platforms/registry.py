"""Platforms by name."""

from __future__ import annotations

from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Platform
from training_gym.spec.plugins import load_plugin

BUILT_IN = {"local": "training_gym.platforms.local.platform:LocalPlatform"}


def find_platform(kind: str) -> Platform:
    """The platform that `compute.kind` names; raises `PlatformError`."""
    platform: Platform = load_plugin("training_gym.platforms", kind, BUILT_IN, PlatformError)
    return platform
