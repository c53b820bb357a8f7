"""Providers by name: built in, or from packages that declare the entry-point group."""

from __future__ import annotations

from training_gym.spec.plugins import Plugins
from training_gym.spec.sandboxes import SandboxError, SandboxProvider

GROUP = "training_gym.sandboxes"
"""Entry-point group under which a package declares `name = "module:Class"`."""

_PLUGINS = Plugins(
    "sandbox provider",
    GROUP,
    {
        "local": "training_gym.sandboxes.local:LocalProvider",
        "landlock": "training_gym.sandboxes.confined:LandlockProvider",
        "bubblewrap": "training_gym.sandboxes.bubblewrap:BubblewrapProvider",
        "docker": "training_gym.sandboxes.containers:DockerProvider",
        "podman": "training_gym.sandboxes.containers:PodmanProvider",
        "seatbelt": "training_gym.sandboxes.seatbelt:SeatbeltProvider",
        "modal": "training_gym.sandboxes.remote.modal:ModalProvider",
        "daytona": "training_gym.sandboxes.remote.daytona:DaytonaProvider",
        "e2b": "training_gym.sandboxes.remote.e2b:E2BProvider",
    },
    SandboxError,
)


def names() -> list[str]:
    """Names of all providers there are."""
    return _PLUGINS.names()


def find(name: str) -> SandboxProvider:
    """The provider of that name, made without arguments; raises `SandboxError`."""
    provider: SandboxProvider = _PLUGINS.make(name)
    return provider
