"""A way to isolate a program that is not the zygote's: Bubblewrap's walls, or Landlock's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from training_gym.spec.sandboxes import SandboxCapabilities, SandboxSpec, TierReport

_FIRST_PRIVATE_UID, _NUM_PRIVATE_UIDS = 1_900_100_000, 50_000


def private_uid(number: int) -> int:
    """A host user for one sandbox alone, where root gives it one."""
    return _FIRST_PRIVATE_UID + (os.getpid() * 97 + number) % _NUM_PRIVATE_UIDS


@dataclass(frozen=True)
class Enclosed:
    """How to start one sandbox."""

    command: tuple[str, ...]
    """Put before the interpreter; empty: run it directly."""
    workspace: str
    """Inside."""
    root: str
    """Inside: what files are read below."""
    readable: tuple[str, ...] = ()
    """What commands may read, where they confine themselves."""
    env: Mapping[str, str] = field(default_factory=dict)
    uid: int | None = None
    """To drop to before anything else."""


class Enclosure(Protocol):
    """One way to isolate a program."""

    name: str
    tier: str

    def capabilities(self) -> SandboxCapabilities:
        """What sandboxes made with it can do."""
        ...

    def check(self) -> None:
        """Raise `SandboxUnsupported` where it does not work, with the reason."""
        ...

    def report(self) -> TierReport:
        """What it keeps, where it works."""
        ...

    def enclose(self, spec: SandboxSpec, folder: Path, number: int) -> Enclosed:
        """How to start a sandbox that may keep files in a folder of its own on the host."""
        ...
