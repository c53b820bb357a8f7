"""Which process that was: an identity that survives reboots and the reuse of process ids."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from training_gym.spec.settings import Settings


class ProcessIdentity(Settings):
    """One process of one boot of one host."""

    pid: int
    started: str
    """When it started, in the system's own words; a reused id has another."""
    host: str
    boot: str
    """Names the boot and the process namespace."""


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this id now; None: there is none."""
    started = _start_of(pid)
    if started is None:
        return None
    return ProcessIdentity(pid=pid, started=started, host=socket.gethostname(), boot=_boot())


def this_process() -> ProcessIdentity:
    """The process that asks."""
    identity = identify(os.getpid())
    assert identity is not None, "a running process has a start time"
    return identity


def is_alive(identity: ProcessIdentity) -> bool | None:
    """Whether the process still runs; None: it is on another host, which cannot be asked."""
    if identity.boot != _boot():
        # Another boot of this host ended every process of it. Another namespace of the same boot
        # is a container that cannot be looked into.
        rebooted = identity.host == socket.gethostname() and not _same_boot(identity.boot)
        return False if rebooted else None
    return _start_of(identity.pid) == identity.started


def _start_of(pid: int) -> str | None:
    """Start of a process that runs; None if there is none or only its exit status is left."""
    if sys.platform == "linux":
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        fields = text[text.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if len(answer) < 2 or answer[0].startswith("Z") else answer[1].strip()


@cache
def _boot() -> str:
    if sys.platform == "linux":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    return subprocess.run(
        ["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False
    ).stdout.strip()


def _same_boot(boot: str) -> bool:
    return boot.split(" ")[0] == _boot().split(" ")[0]
