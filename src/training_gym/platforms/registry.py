"""Platforms by name: built in, or from packages that declare the entry-point group."""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points

from training_gym.spec.errors import PlatformError, did_you_mean
from training_gym.spec.job import Platform

GROUP = "training_gym.platforms"
"""Entry-point group under which a package declares `name = "module:Class"`."""

_BUILT_IN = {"local": "training_gym.platforms.local.platform:LocalPlatform"}


def names() -> list[str]:
    """Names of all platforms there are."""
    return sorted({*_BUILT_IN, *entry_points(group=GROUP).names})


def find(name: str) -> Platform:
    """The platform of that name, made without arguments; raises `PlatformError`."""
    # Our own come first: they work from a source tree, and no package takes their names.
    address = _BUILT_IN.get(name) or _declared(name)
    if address is None:
        raise PlatformError(f"no platform is called {name!r}", fix=did_you_mean(name, names()))
    module, _, attribute = address.partition(":")
    try:
        platform: Platform = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise PlatformError(
            f"platform {name!r} ({address}) cannot be loaded: {error}",
            fix="install or repair the package that declares it",
        ) from error
    return platform


def _declared(name: str) -> str | None:
    found: list[EntryPoint] = list(entry_points(group=GROUP, name=name))
    return found[0].value if found else None
