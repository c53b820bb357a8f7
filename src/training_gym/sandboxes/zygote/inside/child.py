"""From the clone to process 1: what a new sandbox does to itself, in this order.

Wait for the request; join the cgroups; set limits; build the tree and lose the old one; drop every
privilege; install the filter; tell the host. Nothing of the sandbox's files is touched before the
privileges are gone.

Every page of memory that is written to for the first time after a fork costs a fault and a copy,
some thousand times a millisecond's worth: so what can be made before the fork is, and what runs
here is plain, calls few functions and makes few objects.
"""

from __future__ import annotations

import _socket
import contextlib
import json
import os
import resource
import struct
from typing import Any, NoReturn

from training_gym.sandboxes.zygote.inside import frames, seccomp
from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.sandboxes.zygote.inside.init import LINK, WAKE, Init
from training_gym.sandboxes.zygote.inside.sweep import Sweep
from training_gym.sandboxes.zygote.inside.trees import Boot, build_sandbox_tree

_MIB = 1 << 20
_ROOT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 10)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE."""
_FILTER = seccomp.Filter(seccomp.program(seccomp.INTERNET))
_HANDLES = struct.Struct("3i")
_SPACE = _socket.CMSG_SPACE(8 * _HANDLES.size)
_COMPLETE = frames.document(frames.READY, 0, {"missing": []})


def become_sandbox(boot: Boot, control: _socket.socket, init: Init) -> NoReturn:
    """Never returns: waits for its request, then serves the host as `init`, made before the fork.

    `control`: where the request comes from, with the link to the host and the cgroups' task files.
    """
    sc.die_with_parent()
    limit_always()
    _socket.sethostname("sandbox")
    handle = os.pidfd_open(os.getpid())
    json.loads('{"touched": "what it touches is touched"}')
    message, ancillary, _, _ = control.recvmsg(1 << 16, _SPACE)
    if not message or not ancillary:
        os._exit(0)
    rights = ancillary[0][2]
    link, *cgroups = struct.unpack(f"{len(rights) // 4}i", rights)
    try:
        request = json.loads(message)
        missing, handles = _set_up(boot, request, cgroups, handle)
        if "proc" in missing:
            init.sweep = Sweep(False)
        sc.set_dumpable(False)
        told = frames.document(frames.READY, 0, {"missing": missing}) if missing else _COMPLETE
        _settle(link, told, handles)
        link = LINK
        init.serve()
    except BaseException as error:  # noqa: BLE001 (the boundary: the host is told, whatever it is)
        with contextlib.suppress(OSError):
            os.write(link, frames.document(frames.REFUSED, 0, {"error": repr(error)}))
    os._exit(111)


def _set_up(
    boot: Boot, request: dict[str, Any], cgroups: list[int], handle: int
) -> tuple[list[str], tuple[int, int, int]]:
    # Alone and for itself, a thread moves between groups without the kernel's global lock.
    for tasks in cgroups:
        os.write(tasks, b"0")
    limit_resources(request)
    uid = 0 if request["user"] == "root" else 1000
    sc.become(uid, uid)
    # Changing users makes a process undumpable, and its /proc files root's.
    sc.set_dumpable(True)
    if boot.rootless:
        sc.raise_loopback()
    state, missing = build_sandbox_tree(
        boot, request["disk_mb"], request["files"], request["layers"]
    )
    sc.die_with_parent()
    sc.keep_capabilities(_ROOT_CAPABILITIES if uid == 0 else ())
    _FILTER.install()
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    return missing, (root, state, handle)


_HARD = {
    kind: resource.getrlimit(kind)[1]
    for kind in (
        resource.RLIMIT_CORE,
        resource.RLIMIT_NOFILE,
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_NPROC,
        resource.RLIMIT_MEMLOCK,
        resource.RLIMIT_MSGQUEUE,
    )
}


def limit_always() -> None:
    """Set the limits that are the same for all."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, 4096)
    _limit(resource.RLIMIT_MEMLOCK, 8 * _MIB)
    _limit(resource.RLIMIT_MSGQUEUE, 819_200)


def limit_resources(request: dict[str, Any]) -> None:
    """Set those that a spec asks for and each process keeps by itself."""
    _limit(resource.RLIMIT_FSIZE, request["disk_mb"] * _MIB)
    _limit(resource.RLIMIT_NPROC, request["processes"])
    if request["data_mb"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["data_mb"] * _MIB,) * 2)


def _limit(kind: int, value: int) -> None:
    hard = _HARD[kind]
    if hard != resource.RLIM_INFINITY and value > hard:
        value = hard
    resource.setrlimit(kind, (value, value))


def _settle(link: int, told: bytes, handles: tuple[int, int, int]) -> None:
    """Tell the host, and keep no descriptors but the link and what wakes process 1."""
    sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, link)
    rights = _HANDLES.pack(*handles)
    sender.sendmsg([told], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    sender.detach()
    os.dup2(link, LINK, inheritable=False)
    os.set_blocking(LINK, False)
    for source, target in zip(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC), WAKE, strict=True):
        os.dup2(source, target, inheritable=False)
    os.dup2(0, 2)
    sc.close_range(3, WAKE[0] - 1)
    sc.close_range(LINK + 1)
