"""Copying and removing folders without `shutil`, whose archive formats every fork would carry."""

from __future__ import annotations

import contextlib
import os
import stat


def copy(source: str, target: str) -> None:
    """Copy a file, a link or a folder with all below it; raises `OSError`.

    What cannot be read within a folder is left out. Modes are kept, owners and times are not.
    """
    status = os.lstat(source)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISDIR(status.st_mode):
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(source):
            with contextlib.suppress(OSError):
                copy(f"{source}/{name}", f"{target}/{name}")
    elif stat.S_ISREG(status.st_mode):
        with open(source, "rb") as old, open(target, "wb") as new:
            while piece := old.read(1 << 20):
                new.write(piece)
        os.chmod(target, status.st_mode & 0o755)


def remove(name: str, parent: int) -> None:
    """Remove a folder of `parent` and all below it, as far as possible; follows no link."""
    with contextlib.suppress(OSError):
        for _, folders, files, here in os.fwalk(
            name, topdown=False, follow_symlinks=False, dir_fd=parent
        ):
            for file in files:
                with contextlib.suppress(OSError):
                    os.unlink(file, dir_fd=here)
            for folder in folders:
                with contextlib.suppress(OSError):
                    _remove_entry(folder, here)
        os.rmdir(name, dir_fd=parent)


def _remove_entry(name: str, parent: int) -> None:
    """A folder, or a link to one, which a walk lists among the folders."""
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
