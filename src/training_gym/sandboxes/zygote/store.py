"""Snapshots of files: copies of a sandbox's writable layer, stacked under those made from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.spec.sandboxes import Image, SandboxFileError, SandboxUnsupported, StartFailed

MAX_LAYERS = 100
"""Forks of forks; mount(2) takes one page of options."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_RESOLVE = sc.RESOLVE_BENEATH | sc.RESOLVE_NO_SYMLINKS | sc.RESOLVE_NO_XDEV


@dataclass
class Layer:
    """One snapshot, and what keeps it."""

    layers: tuple[str, ...]
    """It and those below it, the newest first."""
    image: Image
    """What lies below all of them."""
    users: int = 0
    """Living sandboxes and snapshots that build on it."""
    deleted: bool = False
    size_bytes: int = field(default=0)


class Store:
    """The snapshots of one provider."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where they lie; sandboxes see it read-only while they are made."""
        self._folder = folder
        self._layers: dict[str, Layer] = {}
        self._number = 0

    def find(self, snapshot_id: str) -> Layer:
        """A snapshot that was not deleted; raises `StartFailed`."""
        layer = self._layers.get(snapshot_id)
        if layer is None or layer.deleted:
            raise StartFailed(
                f"there is no snapshot {snapshot_id!r}",
                fix="local snapshots live as long as their provider: take one first",
            )
        return layer

    def add(self, upper: int, below: tuple[str, ...], image: Image) -> str:
        """Copy a writable layer; returns the new snapshot's id. Blocks: call it in a thread.

        Raises `SandboxFileError` where the tree cannot be copied.
        """
        if len(below) >= MAX_LAYERS:
            raise SandboxUnsupported(
                f"{len(below)} snapshots lie on each other already",
                fix="create afresh and write the files into it",
            )
        self._number += 1
        name = f"s{self._number}"
        target = self._folder / name
        try:
            target.mkdir()
            size = copy_layer(upper, target)
        except BaseException as error:
            shutil.rmtree(target, ignore_errors=True)
            if isinstance(error, OSError):
                raise SandboxFileError(
                    f"the files cannot be copied: {error}", fix="free disk space, or write less"
                ) from error
            raise
        self._layers[name] = Layer((name, *below), image, size_bytes=size)
        self.use(below)
        return name

    def use(self, layers: Sequence[str]) -> None:
        """Something builds on these."""
        for name in layers:
            self._layers[name].users += 1

    def release(self, layers: Sequence[str]) -> None:
        """It is gone."""
        for name in layers:
            self._layers[name].users -= 1
            self._remove_if_unused(name)

    def delete(self, snapshot_id: str) -> None:
        """Start nothing from it any more; its files go when nothing builds on them."""
        if snapshot_id in self._layers and not self._layers[snapshot_id].deleted:
            self._layers[snapshot_id].deleted = True
            self._remove_if_unused(snapshot_id)

    def _remove_if_unused(self, name: str) -> None:
        layer = self._layers[name]
        if layer.deleted and layer.users == 0:
            del self._layers[name]
            shutil.rmtree(self._folder / name, ignore_errors=True)
            self.release(layer.layers[1:])


def copy_layer(source: int, target: Path) -> int:
    """Copy an overlay's writable layer with its marks of deletion; returns bytes copied.

    The tree is hostile and may change meanwhile: every name is opened without following anything,
    and what is neither folder, file, link nor mark is left out.
    """
    total = 0
    todo = [""]
    while todo:
        folder = todo.pop()
        fd = sc.open_in(source, folder or ".", os.O_RDONLY | os.O_DIRECTORY, _RESOLVE)
        try:
            place = target / folder
            _copy_folder(fd, place)
            for entry in os.scandir(fd):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    (place / entry.name).mkdir()
                    todo.append(f"{folder}/{entry.name}".lstrip("/"))
                else:
                    total += _copy_entry(fd, entry.name, status, place / entry.name)
        finally:
            os.close(fd)
    return total


def _copy_folder(fd: int, place: Path) -> None:
    status = os.fstat(fd)
    with contextlib.suppress(OSError):
        for name in os.listxattr(fd):
            if name.startswith("user.overlay."):
                os.setxattr(place, name, os.getxattr(fd, name))
    _own(place, status)
    place.chmod(status.st_mode & 0o1777)


def _copy_entry(folder: int, name: str, status: os.stat_result, place: Path) -> int:
    if stat.S_ISLNK(status.st_mode):
        place.symlink_to(os.readlink(name, dir_fd=folder))
        _own(place, status)
    elif stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
        os.mknod(place, 0o600 | stat.S_IFCHR, 0)  # how overlay marks what was deleted
    elif stat.S_ISREG(status.st_mode):
        return _copy_file(os.open(name, _OPEN, dir_fd=folder), place)
    return 0


def _copy_file(source: int, place: Path) -> int:
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):  # replaced since we looked
            return 0
        target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            copied = 0
            # No further than it was long: a file that grows while it is read would never end.
            while copied < status.st_size:
                count = os.sendfile(target, source, None, min(status.st_size - copied, 1 << 24))
                if not count:
                    break
                copied += count
            os.fchmod(target, status.st_mode & 0o1777)  # who would be setuid here?
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(target)
        _own(place, status)
        return copied
    finally:
        os.close(source)


def _own(place: Path, status: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(place, status.st_uid, status.st_gid, follow_symlinks=False)
