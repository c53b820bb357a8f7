"""Running the collector: where it listens, its keys, and how it ends.

It takes records for the home's runs and gives newest values to Prometheus; nothing else. Whoever
holds its key may register runs; a second key only reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from training_gym.dashboard.access import Access, read_secret
from training_gym.dashboard.serving import listen, name_of, run_server
from training_gym.records.remote.http import Keys, application
from training_gym.spec.home import cache_directory, home, runs_directory

PORT = 7861


@dataclass(frozen=True)
class Collecting:
    """How to collect."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0: any free one."""
    new_key: bool = False


@dataclass(frozen=True)
class Collects:
    """What to tell others of a collector that runs."""

    url: str
    key: str
    """Registers runs, and reads."""
    read_key: str
    """Only reads `/metrics`."""


def collect(collecting: Collecting, ready: Callable[[Collects], None]) -> None:
    """Collect until interrupted; `ready` hears of the address once it answers.

    Raises `PlatformError` where the port is taken or the key cannot be kept.
    """
    access = Access(secret=read_secret(home() / "collector" / "secret", new=collecting.new_key))
    app = application(runs_directory(), keys_of(access), cache_directory() / "index")
    listening = listen(collecting.host, collecting.port)
    with listening:
        port: int = listening.getsockname()[1]
        url = f"http://{name_of(collecting.host)}:{port}"
        told = Collects(url, access.key("editor"), access.key("viewer"))
        asyncio.run(run_server(app, listening, lambda: ready(told)))


def keys_of(access: Access) -> Keys:
    """What the collector asks of its keys."""

    def may_register(key: str) -> bool:
        identity = access.by_key(key)
        return identity is not None and identity.role == "editor"

    return Keys(may_register, lambda key: access.by_key(key) is not None)
