"""Reading a sandbox's files from outside, however hostile they are.

Paths are resolved by the kernel as if the sandbox's root were the root (`openat2`, IN_ROOT), so a
link or `..` never leads to the host. Opening never blocks, and only regular files of real file
systems are read, never more than allowed.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator

from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.spec.sandboxes import MIB, SandboxFileError

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_INLINE = 1 << 16
"""Files up to this size are read in the event loop: a thread would take longer."""


def open_file(root: int, path: str, max_bytes: int) -> tuple[int, int]:
    """A descriptor of a regular file and its size; raises `SandboxFileError`."""
    try:
        resolve = sc.RESOLVE_IN_ROOT | sc.RESOLVE_NO_MAGICLINKS
        fd = sc.open_in(root, path, _FLAGS, resolve)
    except OSError as error:
        raise SandboxFileError(
            f"{path!r} cannot be read: {error.strerror}", fix="check the path"
        ) from None
    except ValueError as error:
        raise SandboxFileError(f"{path!r} is no path: {error}", fix="check the path") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SandboxFileError(f"{path!r} is not a regular file", fix="read regular files only")
        if status.st_size > max_bytes:
            raise SandboxFileError(
                f"{path!r} has {status.st_size} bytes, {max_bytes} are allowed",
                fix="raise max_bytes, or let the sandbox cut it down",
            )
    except BaseException:
        os.close(fd)
        raise
    return fd, status.st_size


async def read_chunks(
    root: int, path: str, max_bytes: int, chunk_bytes: int = MIB
) -> AsyncGenerator[bytes, None]:
    """A file's content in pieces; one that grows beyond the limit meanwhile is refused too."""
    fd, size = open_file(root, path, max_bytes)
    total = 0
    try:
        while True:
            if size <= _INLINE:
                data = os.read(fd, chunk_bytes)
            else:
                data = await asyncio.to_thread(os.read, fd, chunk_bytes)
            if not data:
                return
            total += len(data)
            if total > max_bytes:
                raise SandboxFileError(
                    f"{path!r} grew beyond {max_bytes} bytes", fix="raise max_bytes"
                )
            yield data
    except OSError as error:
        raise SandboxFileError(
            f"{path!r} cannot be read: {error.strerror}", fix="read regular files only"
        ) from None
    finally:
        os.close(fd)


async def read_file(root: int, path: str, max_bytes: int) -> bytes:
    """A file's content."""
    return b"".join([chunk async for chunk in read_chunks(root, path, max_bytes)])
