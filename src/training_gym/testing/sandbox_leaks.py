"""What local sandboxes may leave behind: processes, control groups, mounts, files. Nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from training_gym.sandboxes.zygote import cgroups
from training_gym.sandboxes.zygote.owner import group_prefix

OWNER = """
import asyncio, sys
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import ExecRequest, SandboxSpec

async def one(provider):
    while True:
        sandbox = await provider.create(SandboxSpec())
        await sandbox.write_file("f", b"x" * 100000)
        await sandbox.exec(ExecRequest(argv=("sh", "-c", "sleep 60 & setsid sleep 60 & true")))
        # Copies of files are ours, not the lesser user's: only root's zygote may remove them.
        if not sys.argv[1:]:
            for child in await sandbox.fork(1):
                await child.destroy()
        await sandbox.destroy()

async def main():
    provider = ZygoteProvider(uid=int(sys.argv[1]) if sys.argv[1:] else None)
    held = [await provider.create(SandboxSpec()) for _ in range(3)]
    for sandbox in held:
        await sandbox.start(ExecRequest(argv=("sleep", "600"), timeout_s=600))
    print("busy", flush=True)
    await asyncio.gather(*(one(provider) for _ in range(3)))

asyncio.run(main())
"""
"""A program that keeps making, using, forking and destroying sandboxes until it is killed."""


@dataclass(frozen=True)
class Traces:
    """What there is of an owner."""

    processes: tuple[int, ...]
    groups: tuple[str, ...]
    mounts: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def none(self) -> bool:
        """Whether there is nothing."""
        return not (self.processes or self.groups or self.mounts or self.files)


def traces(home: Path, known: frozenset[int] = frozenset()) -> Traces:
    """What owners with this home have on the machine; `known` processes do not count."""
    owners = [folder.name for folder in home.glob("sandboxes*/*")]
    parents = {home / "sandboxes", *home.glob("sandboxes*")}
    prefixes = [group_prefix(parent / "0").removesuffix("0-") for parent in parents]
    groups = [
        str(folder)
        for hierarchy in cgroups.find()
        for prefix in prefixes
        for folder in hierarchy.parent.glob(f"{prefix}*")
    ]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return Traces(
        processes=tuple(pid for pid in _zygotes_of(home) if pid not in known),
        groups=tuple(groups),
        mounts=tuple(line for line in mounts if str(home) in line),
        files=tuple(owners),
    )


def kill_at_random(home: Path, *, uid: int | None, seed: int, patience_s: float = 60.0) -> Traces:
    """SIGKILL a busy owner at a moment drawn by `seed`; returns what is left in the end."""
    command = [sys.executable, "-c", OWNER, *([str(uid)] if uid is not None else [])]
    owner = subprocess.Popen(
        command,
        env={**os.environ, "TRAINING_GYM_HOME": str(home)},
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        # At times before anything is ready, at times in the middle of it.
        draw = random.Random(seed)
        if draw.random() < 0.8:
            owner.stdout.readline()
        time.sleep(draw.random() * 0.5)
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + patience_s
    while True:
        left = traces(home)
        if left.none or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _zygotes_of(home: Path) -> list[int]:
    """Zygotes, keepers and what they forked: their command line is all theirs and nobody else's."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            mountinfo = Path(f"/proc/{name}/mountinfo").read_text()
        except OSError:
            continue
        is_ours = b"/proc/self/fd/5" in words or "/run/box" in mountinfo
        if is_ours and str(home).rpartition("/")[2] in mountinfo:
            found.append(int(name))
    return found
