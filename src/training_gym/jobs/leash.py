"""A process that outlives the job runner by a moment, to end what the runner can no longer end.

The runner holds the other end of its standard input, and writes the process group of the engine it
has started, or 0, as a line. At the end of the input the runner is gone, however it died (also by
SIGKILL): the group last named is killed, and so is every process that carries the run's name in
its environment, where the system shows that (Linux), though it has left the group.

Runs by path with `python -I -S`: standard library only, nothing of this package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def kill_processes(run: str, group: int = 0) -> list[int]:
    """Kill a process group and all processes of a run; returns the ids that were found."""
    if group > 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    found: list[int] = []
    while fresh := [pid for pid in processes_of(run) if pid not in found]:
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found += fresh
    return found


def processes_of(run: str) -> list[int]:
    """Ids of live processes whose environment names the run; empty where that cannot be seen."""
    tag = f"TRAINING_GYM_RUN={run}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            variables = (folder / "environ").read_bytes().split(b"\0")
            if tag in variables and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def main(run: str) -> None:
    """Wait for the runner's end, then end what it has left."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    group = 0
    for line in sys.stdin:
        group = int(line)
    if group:
        kill_processes(run, group)


if __name__ == "__main__":
    main(sys.argv[1])
