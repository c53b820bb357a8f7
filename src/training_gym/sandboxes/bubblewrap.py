"""`bubblewrap`: namespaces made by `bwrap`, our process 1 and filter inside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from training_gym.sandboxes.enclosure import Enclosed, private_uid
from training_gym.sandboxes.kept import KeptProvider
from training_gym.sandboxes.zygote.launch import program_folders
from training_gym.spec.sandboxes import (
    MIB,
    FolderImage,
    SandboxCapabilities,
    SandboxSpec,
    SandboxUnsupported,
    TierReport,
)

_PUBLIC_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs")


class Bubblewrap:
    """The tool of that name, in Debian's package `bubblewrap`."""

    name = "bubblewrap"
    tier = "bubblewrap"

    def capabilities(self) -> SandboxCapabilities:
        """Files lie on its own tmpfs, which cannot be frozen."""
        return SandboxCapabilities(
            images=("host", "folder"),
            networks=("none", "allowlist", "public"),
            connect=True,
            background=True,
        )

    def check(self) -> None:
        """It must be installed."""
        if shutil.which("bwrap") is None:
            raise SandboxUnsupported(
                "bwrap is not installed", fix="apt-get install bubblewrap, or your system's like"
            )

    def report(self) -> TierReport:
        """What was attacked without success."""
        return TierReport(
            tier=self.tier,
            provider=self.name,
            works=True,
            guarantees=(
                "files",
                "processes",
                "network",
                "syscalls",
                "process_count",
                "leftovers",
                "owner_death",
            ),
            limits=(
                "it shares the host's kernel: not for code written to attack it",
                "memory is watched every 30 ms; CPU and the number of files are not limited",
                "the limit on processes counts all of the user's, unless root gives it one",
            ),
        )

    def enclose(self, spec: SandboxSpec, folder: Path, number: int) -> Enclosed:
        """The command line."""
        size = str(spec.resources.disk_mb * MIB)
        words = [str(shutil.which("bwrap")), "--unshare-all", "--die-with-parent", "--as-pid-1"]
        words += ["--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
        words += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        uid = private_uid(number) if os.geteuid() == 0 else None
        words += self._image(spec, program_folders(uid))
        words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        # One file system with one size for all that can be written.
        words += ["--size", size, "--tmpfs", "/workspace", "--dir", "/workspace/.tmp"]
        words += ["--symlink", "/workspace/.tmp", "/tmp", "--dir", "/var"]
        words += ["--symlink", "/workspace/.tmp", "/var/tmp"]
        for mount in spec.mounts:
            words += ["--ro-bind", mount.source, mount.target]
        words += ["--chdir", "/workspace", "--remount-ro", "/", "--"]
        return Enclosed(command=tuple(words), workspace="/workspace", root="/", uid=uid)

    @staticmethod
    def _image(spec: SandboxSpec, programs: tuple[str, ...]) -> list[str]:
        words: list[str] = []
        if isinstance(spec.image, FolderImage):
            words += ["--ro-bind", spec.image.path, "/"]
            # The keeper's interpreter must be there; it is what an image may lack.
            programs = tuple(path for path in programs if path != "/usr")
        for path in programs:
            words += ["--ro-bind", path, path]
        if isinstance(spec.image, FolderImage):
            return words
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            if os.path.islink(f"/{name}"):
                words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        for name in _PUBLIC_ETC:
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        return words


class BubblewrapProvider(KeptProvider):
    """What the entry point names."""

    def __init__(self) -> None:
        """Nothing is started before the first creation."""
        super().__init__(Bubblewrap())
