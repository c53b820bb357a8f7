"""The system calls that Python has no function for. Linux on x86_64 and aarch64, ctypes only."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import socket
import struct
from collections.abc import Callable
from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT = 1, 2, 4, 8, 32
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
DETACH = 2

IS_X86 = platform.machine() == "x86_64"
_PIVOT_ROOT, _CAPSET, _CLONE = (155, 126, 56) if IS_X86 else (41, 91, 220)
_CLOSE_RANGE, _OPENAT2 = 436, 437
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
(
    _PR_CAPBSET_READ,
    _PR_CAPBSET_DROP,
    _PR_SET_CHILD_SUBREAPER,
    _PR_SET_NO_NEW_PRIVS,
    _PR_CAP_AMBIENT,
) = 23, 24, 36, 38, 47
_CAP_HEADER = struct.pack("II", 0x20080522, 0)
_SIGCHLD = 17

RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 1, 2, 4
RESOLVE_BENEATH, RESOLVE_IN_ROOT = 8, 16

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mount.argtypes = [
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
]
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
# Keeps the interpreter's lock: the child of a clone must find it held, as after fork().
_libc_locked = ctypes.PyDLL(None, use_errno=True)
_libc_locked.syscall.restype = ctypes.c_long
_clone = _libc_locked.syscall
# Looked up once, here: a child that did so would write to memory it shares with its parent.
_before_fork: Any = ctypes.pythonapi.PyOS_BeforeFork
_after_fork_parent: Any = ctypes.pythonapi.PyOS_AfterFork_Parent
_after_fork_child: Any = ctypes.pythonapi.PyOS_AfterFork_Child


def checked(result: int, what: str) -> int:
    """The result, or `OSError` with the call's name if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    checked(libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Move this process into the namespace behind `fd`."""
    checked(libc.setns(fd, kind), "setns")


def mount(
    source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str = ""
) -> None:
    """Attach a file system; see its manual page for the arguments."""
    checked(
        libc.mount(
            source.encode() if source else None,
            target.encode(),
            kind.encode() if kind else None,
            flags,
            data.encode() if data else None,
        ),
        f"mount {kind or source or ''} on {target}",
    )


def bind(source: str, target: str, *, recursive: bool = False, read_only: bool = False) -> None:
    """Make `source` appear at `target`."""
    mount(source, target, None, BIND | (RECURSIVE if recursive else 0))
    if read_only:
        remount_read_only(target)


def remount_read_only(target: str) -> None:
    """Make one bind mount read-only, keeping the flags that a user namespace locks."""
    locked = os.statvfs(target).f_flag & (NODEV | NOEXEC | 1024 | 2048)
    mount(None, target, None, REMOUNT | BIND | RDONLY | NOSUID | locked)


def unmount(target: str) -> None:
    """Detach a mount and all below it."""
    checked(libc.umount2(target.encode(), DETACH), f"umount {target}")


def change_root(folder: str) -> None:
    """Make a mount point the root and lose every way back to the old one."""
    os.chdir(folder)
    checked(libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int = 0) -> int:
    """Change one attribute of this process."""
    return checked(libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def set_dumpable(yes: bool) -> None:
    """Whether processes of the same user may trace this one and read its memory."""
    prctl(_PR_SET_DUMPABLE, int(yes))


def become_subreaper() -> None:
    """Inherit orphans among the descendants."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """Let no program gain privileges by being run."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _last_capability() -> int:
    number = 0
    while libc.prctl(_PR_CAPBSET_READ, number + 1, 0, 0, 0) >= 0:
        number += 1
    return number


def _sets(effective: int, permitted: int) -> bytes:
    """Capability sets as capset(2) takes them, nothing inheritable."""
    low = 0xFFFFFFFF
    return struct.pack(
        "6I", effective & low, permitted & low, 0, effective >> 32, permitted >> 32, 0
    )


_CAPABILITIES = range(_last_capability() + 1)
_ALL = _sets((1 << len(_CAPABILITIES)) - 1, (1 << len(_CAPABILITIES)) - 1)


def become(uid: int, gid: int) -> None:
    """Change user, keeping all capabilities, which whoever made a user namespace has there."""
    prctl(_PR_SET_KEEPCAPS, 1)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    checked(libc.syscall(_CAPSET, _CAP_HEADER, _ALL), "capset")


def keep_capabilities(wanted: tuple[int, ...] = ()) -> None:
    """Drop all capabilities but these, for ever."""
    drop = libc.prctl
    for number in _CAPABILITIES:
        if number not in wanted:
            drop(_PR_CAPBSET_DROP, number, 0, 0, 0)
    drop(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    mask = sum(1 << number for number in wanted)
    checked(libc.syscall(_CAPSET, _CAP_HEADER, _sets(mask, mask)), "capset")


def close_range(first: int, last: int = 0xFFFFFFFF) -> None:
    """Close every descriptor from `first` to `last`."""
    call = libc.syscall(_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(last), 0)
    checked(call, "close_range")


def clone(flags: int) -> int:
    """fork() into new namespaces in one call. The caller must have no other threads."""
    _before_fork()
    result: int = _clone(_CLONE, ctypes.c_ulong(flags | _SIGCHLD), 0, 0, 0, 0)
    if result == 0:
        _after_fork_child()
        return 0
    number = ctypes.get_errno()
    _after_fork_parent()
    if result < 0:
        raise OSError(number, f"clone: {os.strerror(number)}")
    return result


def open_in(root: int, path: str, flags: int, resolve: int) -> int:
    """openat2(2) with resolution confined below `root`; always close-on-exec."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    while True:
        result: int = libc.syscall(_OPENAT2, root, os.fsencode(path), how, len(how))
        # EAGAIN: something was renamed meanwhile, and the kernel could not be sure.
        if result >= 0 or ctypes.get_errno() != 11:
            return checked(result, f"openat2 {path}")


def raise_loopback() -> None:
    """Bring up `lo` in the current network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def works(action: Callable[[], object]) -> str:
    """Try something in a forked child; returns why it fails, empty if it does not."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 (whatever it is, the parent is told)
            os.write(writer, str(error).encode() or b"failed")
        os._exit(0)
    os.close(writer)
    told = os.read(reader, 4096).decode()
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return told or ("" if status == 0 else f"ended with status {status}")
