"""Who owns what on disk: a folder for each provider, named by a process that can be looked up."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from training_gym.sandboxes.zygote import cgroups
from training_gym.spec.home import home
from training_gym.spec.sandboxes import StartFailed

_NUMBERS = itertools.count(1)


def claim_folder(
    hierarchies: Sequence[cgroups.Hierarchy], uid: int | None, parent: Path | None = None
) -> Path:
    """A new folder of this process; what owners that are gone have left is removed first."""
    parent = parent or home() / ("sandboxes" if uid is None else f"sandboxes-{uid}")
    parent.mkdir(parents=True, exist_ok=True)
    if uid is not None:
        # Its zygote must be able to remove what a killed owner leaves there.
        os.chown(parent, uid, uid)
    remove_orphaned(parent, hierarchies)
    folder = parent / f"{os.getpid()}-{_start_time(os.getpid())}-{next(_NUMBERS)}"
    (folder / "store").mkdir(parents=True)
    folder.chmod(0o700)
    # Sandboxes enter by a mount of the store itself, whatever is above it.
    (folder / "store").chmod(0o711)
    if uid is not None:
        for path in (folder, folder / "store"):
            os.chown(path, uid, uid)
    return folder


def group_prefix(folder: Path) -> str:
    """How the names of an owner's control groups begin."""
    # Another home's owners of the same number are none of ours.
    place = hashlib.sha256(os.fsencode(folder.parent)).hexdigest()[:8]
    return f"training-gym-{place}-{folder.name}-"


def shared_parent() -> Path:
    """Where owners keep what users of their sandboxes must reach by path. Raises `StartFailed`."""
    parent = Path(tempfile.gettempdir()) / f"training-gym-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        parent.mkdir(mode=0o711)
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise StartFailed(f"{parent} belongs to somebody else", fix="remove it, or set TMPDIR")
    parent.chmod(0o711)
    return parent


def remove_orphaned(parent: Path, hierarchies: Sequence[cgroups.Hierarchy]) -> None:
    """Remove folders and control groups of owners that were killed together with their zygote."""
    # Groups first, and by their own names: their owner's home may be gone with it.
    for hierarchy in hierarchies:
        for group in hierarchy.parent.glob("training-gym-*"):
            if _is_orphaned("-".join(group.name.split("-")[-4:])):
                with contextlib.suppress(OSError):
                    group.rmdir()
    for folder in parent.iterdir():
        if _is_orphaned(folder.name):
            cgroups.remove_stale(hierarchies, group_prefix(folder))
            shutil.rmtree(folder, ignore_errors=True)


def _is_orphaned(name: str) -> bool:
    pid, _, rest = name.partition("-")
    start, _, _ = rest.partition("-")
    if not (pid.isdecimal() and start.isdecimal()):
        return False
    return _start_time(int(pid)) != int(start)


def _start_time(pid: int) -> int:
    """When a process started, in ticks since the machine did; -1 if there is none."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    return -1
