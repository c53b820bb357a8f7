"""What a started sandbox consists of on the host."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from training_gym.spec.sandboxes import Image

WORKSPACE = "/workspace"


@dataclass(frozen=True)
class Parts:
    """What a started sandbox consists of on the host."""

    link: socket.socket
    root: int
    """Descriptor of its root folder."""
    state: int
    """Descriptor of the folder with its writable layer."""
    handle: int
    """pidfd of its process 1."""
    missing: tuple[str, ...]
    layers: tuple[str, ...]
    image: Image
    """What it was made from, below all snapshots."""
    warm: bool
    """Whether source runs in a fork of the zygote's interpreter."""
    env: Mapping[str, str]
    workspace: str = WORKSPACE
    root_path: str = "/"
    """What `root` is inside: nothing outside of it can be read."""
    can_connect: bool = True

    def pid(self) -> int:
        """Process 1, as the host numbers it; while it lives."""
        return _pid_behind(self.handle)


def _pid_behind(handle: int) -> int:
    info = os.open(f"/proc/self/fdinfo/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _, found, rest = os.read(info, 4096).partition(b"\nPid:")
    finally:
        os.close(info)
    if not found:
        raise OSError("a pidfd without Pid")
    return int(rest.split(b"\n", 1)[0])
