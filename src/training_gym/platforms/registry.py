"""Platforms by name: built in, or from packages that declare the entry-point group."""

from __future__ import annotations

from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Platform
from training_gym.spec.plugins import Plugins

GROUP = "training_gym.platforms"
"""Entry-point group under which a package declares `name = "module:Class"`."""

_PLUGINS = Plugins(
    "platform",
    GROUP,
    {"local": "training_gym.platforms.local.platform:LocalPlatform"},
    PlatformError,
)


def names() -> list[str]:
    """Names of all platforms there are."""
    return _PLUGINS.names()


def find(name: str) -> Platform:
    """The platform of that name, made without arguments; raises `PlatformError`."""
    platform: Platform = _PLUGINS.make(name)
    return platform
