"""Unpacking an image's layers over each other, whatever they contain.

Parents are resolved by the kernel as if the target were the root, so that no name or link of a
layer leads outside. Devices, setuid bits and extended attributes are left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

from training_gym.sandboxes.zygote.inside import syscalls as sc

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_NUM_UIDS = 65_536
_PIECE = 1 << 20


def unpack(layers: Sequence[Path], target: Path, first_uid: int | None) -> None:
    """Apply layers, the lowest first; raises `OSError`.

    Files belong to `first_uid` plus their own uid, or to us where it is None.
    """
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for layer in layers:
            try:
                with tarfile.open(layer, mode="r|*") as archive:
                    Layer(root, first_uid).apply(archive)
            except tarfile.TarError as error:
                raise OSError(f"layer {layer.name[:12]}: {error}") from error
    finally:
        os.close(root)


class Layer:
    """The application of one layer."""

    def __init__(self, root: int, first_uid: int | None) -> None:
        """`root`: descriptor of the folder to unpack into."""
        self._root = root
        self._first_uid = first_uid
        self._written: set[str] = set()

    def apply(self, archive: tarfile.TarFile) -> None:
        """All entries, in their order."""
        for entry in archive:
            path = os.path.normpath("/" + entry.name).lstrip("/")
            if not path:
                continue
            folder, name = os.path.split(path)
            parent = self._enter(folder)
            try:
                if name == _OPAQUE:
                    self._empty(parent, folder)
                elif name.startswith(_WHITEOUT):
                    _remove(parent, name.removeprefix(_WHITEOUT))
                else:
                    self._make(archive, entry, parent, name)
                    self._written.add(path)
            finally:
                os.close(parent)

    def _enter(self, folder: str) -> int:
        """A descriptor of a folder below the root, made where it is missing."""
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY
            return sc.open_in(self._root, folder or ".", flags, sc.RESOLVE_IN_ROOT)
        except FileNotFoundError:
            above, name = os.path.split(folder)
            parent = self._enter(above)
            try:
                os.mkdir(name, 0o755, dir_fd=parent)
                self._own(parent, name, 0, 0)
            except FileExistsError:
                raise OSError(f"{folder} is a link that leads nowhere") from None
            finally:
                os.close(parent)
            return self._enter(folder)

    def _make(
        self, archive: tarfile.TarFile, entry: tarfile.TarInfo, parent: int, name: str
    ) -> None:
        if entry.isdir():
            # A folder keeps what lower layers put into it; anything else gives way.
            try:
                os.mkdir(name, 0o755, dir_fd=parent)
            except FileExistsError:
                if not _is_folder(parent, name):
                    _remove(parent, name)
                    os.mkdir(name, 0o755, dir_fd=parent)
        elif entry.isfile():
            _remove(parent, name)
            self._write(archive, entry, parent, name)
        elif entry.issym():
            _remove(parent, name)
            os.symlink(entry.linkname, name, dir_fd=parent)
        elif entry.islnk():
            _remove(parent, name)
            self._link(entry.linkname, parent, name)
            return
        else:
            return
        self._own(parent, name, entry.uid, entry.gid)
        if not entry.issym():
            os.chmod(name, entry.mode & 0o1777, dir_fd=parent)
            with contextlib.suppress(OSError, OverflowError):
                os.utime(name, (entry.mtime, entry.mtime), dir_fd=parent)

    def _write(
        self, archive: tarfile.TarFile, entry: tarfile.TarInfo, parent: int, name: str
    ) -> None:
        source = archive.extractfile(entry)
        assert source is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(name, flags, 0o600, dir_fd=parent), "wb") as target:
            shutil.copyfileobj(source, target, _PIECE)

    def _link(self, linked: str, parent: int, name: str) -> None:
        folder, source = os.path.split(os.path.normpath("/" + linked).lstrip("/"))
        there = self._enter(folder)
        try:
            os.link(source, name, src_dir_fd=there, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(there)

    def _empty(self, parent: int, folder: str) -> None:
        """Remove what lower layers put into a folder, and keep what this one did."""
        prefix = f"{folder}/" if folder else ""
        for name in os.listdir(parent):
            path = prefix + name
            if not any(kept == path or kept.startswith(path + "/") for kept in self._written):
                _remove(parent, name)

    def _own(self, parent: int, name: str, uid: int, gid: int) -> None:
        if self._first_uid is not None:
            first = self._first_uid
            owner, group = (first + min(number, _NUM_UIDS - 1) for number in (uid, gid))
            os.chown(name, owner, group, dir_fd=parent, follow_symlinks=False)


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _remove(parent: int, name: str) -> None:
    """Remove an entry of whatever kind; an absent one is gone already."""
    try:
        if _is_folder(parent, name):
            shutil.rmtree(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
