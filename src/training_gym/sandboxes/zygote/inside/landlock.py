"""Landlock: a process gives up all files but the listed ones, for itself and its children."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from training_gym.sandboxes.zygote.inside import syscalls as sc

NEEDED_ABI = 6
"""From here on signals and abstract sockets can be kept inside too (Linux 6.12)."""
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_WRITE_FILE, _TRUNCATE, _IOCTL = 1 << 1, 1 << 14, 1 << 15
_ALL_FILES = (1 << 16) - 1
_ALL_PORTS, _ALL_SCOPES = 3, 3
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL


def abi() -> int:
    """The kernel's version of it; 0 where there is none."""
    return max(0, int(sc.libc.syscall(_CREATE, None, 0, 1)))


class Ruleset:
    """What remains allowed."""

    def __init__(self) -> None:
        """Nothing; raises `OSError` below `NEEDED_ABI`."""
        attributes = struct.pack("QQQ", _ALL_FILES, _ALL_PORTS, _ALL_SCOPES)
        self._fd = sc.checked(
            sc.libc.syscall(_CREATE, attributes, len(attributes), 0), "landlock_create_ruleset"
        )

    def allow_reading(self, paths: Iterable[str]) -> None:
        """Reading and running what lies at or below; absent paths are passed over."""
        self._allow(paths, _EXECUTE | _READ_FILE | _READ_FOLDER)

    def allow_using(self, paths: Iterable[str]) -> None:
        """Everything at or below, except device controls."""
        self._allow(paths, _ALL_FILES & ~_IOCTL)

    def enter(self) -> None:
        """From now on, for ever."""
        sc.forbid_new_privileges()
        sc.checked(sc.libc.syscall(_RESTRICT, self._fd, 0), "landlock_restrict_self")

    def _allow(self, paths: Iterable[str], access: int) -> None:
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = access if os.path.isdir(path) else access & _ON_FILES
            rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, fd))
            try:
                sc.checked(sc.libc.syscall(_ADD, self._fd, 1, rule, 0), f"landlock {path}")
            finally:
                os.close(fd)
