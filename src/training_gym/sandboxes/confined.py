"""`landlock`: tier C, for places that refuse namespaces.

Commands confine themselves by Landlock and seccomp before they begin, under limits of their own.
They live in the host's own tree and process table, see that other files and processes exist, and
have no sockets. Where we are root, each sandbox has a user of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from training_gym.sandboxes.enclosure import Enclosed, private_uid
from training_gym.sandboxes.kept import KeptProvider
from training_gym.sandboxes.zygote.inside import landlock
from training_gym.sandboxes.zygote.launch import program_folders
from training_gym.spec.sandboxes import (
    SandboxCapabilities,
    SandboxSpec,
    SandboxUnsupported,
    TierReport,
)

_READABLE = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/dev/random",
    "/dev/urandom",
)


class Landlock:
    """Confinement without namespaces."""

    name = "landlock"
    tier = "C"

    def capabilities(self) -> SandboxCapabilities:
        """No root, no network, no snapshots."""
        return SandboxCapabilities(background=True)

    def check(self) -> None:
        """Needs Linux 6.12."""
        found = landlock.abi()
        if found < landlock.NEEDED_ABI:
            raise SandboxUnsupported(
                f"the kernel offers Landlock ABI {found}, {landlock.NEEDED_ABI} is needed",
                fix="boot Linux 6.12 or newer with landlock among its security modules (lsm=)",
            )

    def report(self) -> TierReport:
        """What was attacked without success."""
        limits = [
            "it shares the host's kernel: not for code written to attack it",
            "names and sizes of the host's files, and that processes exist, can be seen",
            "memory is watched every 30 ms; CPU and bytes on disk are not limited",
            "nothing but SIGKILL of the owner and the keeper together leaves processes behind",
        ]
        if os.geteuid() != 0:
            limits.append("it runs as you: modes of your files outside can be changed (chmod)")
        return TierReport(
            tier=self.tier,
            provider=self.name,
            works=True,
            guarantees=("files", "processes", "network", "syscalls", "leftovers")
            + (("process_count",) if os.geteuid() == 0 else ()),
            limits=tuple(limits),
        )

    def enclose(self, spec: SandboxSpec, folder: Path, number: int) -> Enclosed:
        """A folder of its own, and a user of its own where we can become one."""
        moved = [mount for mount in spec.mounts if mount.source != mount.target]
        if moved:
            raise SandboxUnsupported(
                f"without namespaces {moved[0].source} cannot appear at {moved[0].target}",
                fix="mount it at the same path, or use a tier with namespaces",
            )
        uid = None
        if os.geteuid() == 0:
            uid = private_uid(number)
        workspace = folder / "workspace"
        for path in (workspace, workspace / ".tmp"):
            path.mkdir(mode=0o700)
            if uid is not None:
                os.chown(path, uid, uid)
        readable = [*program_folders(uid), *_READABLE, *(mount.source for mount in spec.mounts)]
        readable += [path for path in ("/bin", "/lib", "/lib64") if os.path.exists(path)]
        return Enclosed(
            command=(),
            workspace=str(workspace),
            root=str(workspace),
            readable=tuple(readable),
            env={"TMPDIR": str(workspace / ".tmp")},
            uid=uid,
        )


class LandlockProvider(KeptProvider):
    """What the entry point names."""

    def __init__(self) -> None:
        """Nothing is started before the first creation."""
        super().__init__(Landlock())
