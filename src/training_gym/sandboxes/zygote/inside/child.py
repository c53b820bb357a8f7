"""From the clone to process 1: what a new sandbox does to itself, in this order.

Join the cgroups; wait for the user map; set limits; build the tree and lose the old one; drop every
privilege; install the filter; tell the host. Nothing of the sandbox's files is touched before the
privileges are gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import socket
from typing import Any, NoReturn

from training_gym.sandboxes.zygote.inside import frames, seccomp
from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.sandboxes.zygote.inside.command import ImportState
from training_gym.sandboxes.zygote.inside.init import Init
from training_gym.sandboxes.zygote.inside.sweep import Sweep
from training_gym.sandboxes.zygote.inside.trees import Boot, Box, build_sandbox_tree

_MIB = 1 << 20
_ROOT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 10)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE."""
_LINK = 3
_PROGRAM = seccomp.program(seccomp.INTERNET)


def become_sandbox(
    boot: Boot, request: dict[str, Any], fds: list[int], gate: int, imports: ImportState
) -> NoReturn:
    """Never returns: serves the host until it hangs up."""
    link = fds[0]
    try:
        told, handles = _set_up(boot, request, fds[1:], gate)
        _settle(link, handles)
        link = _LINK
        imports.close()
        sc.set_dumpable(False)
        _send_ready(told)
        Init(socket.socket(fileno=_LINK), imports, Sweep("proc" not in told["missing"])).serve()
    except BaseException as error:  # noqa: BLE001 (the boundary: the host is told, whatever it is)
        with contextlib.suppress(OSError):
            os.write(link, frames.document(frames.REFUSED, 0, {"error": repr(error)}))
    os._exit(111)


def _set_up(
    boot: Boot, request: dict[str, Any], cgroups: list[int], gate: int
) -> tuple[dict[str, Any], list[int]]:
    # Alone and for itself, a thread moves between groups without the kernel's global lock.
    for tasks in cgroups:
        os.write(tasks, b"0")
    if os.read(gate, 1) != b"x":
        raise OSError("the zygote could not map users")
    limit_resources(request)
    handle = os.pidfd_open(os.getpid())
    uid = 0 if request["user"] == "root" else 1000
    sc.become(uid, uid)
    # Changing users makes a process undumpable, and its /proc files root's.
    sc.set_dumpable(True)
    if boot.rootless:
        sc.raise_loopback()
    box = Box(request["disk_mb"], request["files"], tuple(request["layers"]))
    state, missing = build_sandbox_tree(boot, box)
    with contextlib.suppress(OSError):
        socket.sethostname("sandbox")
    sc.die_with_parent()
    sc.keep_capabilities(_ROOT_CAPABILITIES if uid == 0 else ())
    seccomp.install(_PROGRAM)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    return {"missing": missing}, [root, state, handle]


def limit_resources(request: dict[str, Any]) -> None:
    """Set the limits that each process keeps by itself."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 4096),
        (resource.RLIMIT_FSIZE, request["disk_mb"] * _MIB),
        (resource.RLIMIT_NPROC, request["processes"]),
        (resource.RLIMIT_MEMLOCK, 8 * _MIB),
        (resource.RLIMIT_MSGQUEUE, 819_200),
    ):
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))
    if request["data_mb"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["data_mb"] * _MIB,) * 2)


def _settle(link: int, handles: list[int]) -> None:
    """Descriptors: 0 to 2 nothing, 3 the link, 4 to 6 the handles for the host, no more."""
    # First out of the way: a target may be another's source.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (link, *handles)]
    for target, source in enumerate(high, _LINK):
        os.dup2(source, target, inheritable=False)
    nothing = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(nothing, target)
    sc.close_from(_LINK + len(handles) + 1)


def _send_ready(told: dict[str, Any]) -> None:
    payload = json.dumps(told).encode()
    handles = [_LINK + 1, _LINK + 2, _LINK + 3]
    with socket.socket(fileno=os.dup(_LINK)) as link:
        socket.send_fds(link, [frames.frame(frames.READY, 0, payload)], handles)
    for fd in handles:
        os.close(fd)
