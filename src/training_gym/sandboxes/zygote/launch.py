"""Starting a zygote: a clean interpreter, given its own source as an archive in memory."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from training_gym.sandboxes.zygote.inside import frames
from training_gym.spec.sandboxes import SandboxDied, StartFailed

PRELOAD = (
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "heapq",
    "io",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "string",
    "struct",
    "textwrap",
    "traceback",
    "typing",
)
"""Modules that warm code finds loaded: what snippets use most, and little that is its own library.

Each shared library is five mappings that every fork copies and every end takes apart."""

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LD_BIND_NOW": "1",  # every fork would look the same symbols up, and write them down
}
"""Of the interpreters that sandboxes are made of; commands get their own."""
_INSIDE = Path(__file__).parent / "inside"
_PACKAGE = "training_gym/sandboxes/zygote/inside"


@cache
def archive() -> bytes:
    """The zygote's source as a zip that the interpreter runs, with nothing else in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        folder = ""
        for part in _PACKAGE.split("/"):
            folder += part + "/"
            bundle.writestr(folder + "__init__.py", "")
        for path in sorted(_INSIDE.glob("*.py")):
            if path.name != "__init__.py":
                bundle.writestr(f"{_PACKAGE}/{path.name}", path.read_bytes())
        main = (
            "import sys\n"
            "from training_gym.sandboxes.zygote.inside import keeper, __main__ as zygote\n"
            "keeper.main() if sys.argv[1:] else zygote.main()\n"
        )
        bundle.writestr("__main__.py", main)
    return buffer.getvalue()


def interpreter(uid: int | None = None) -> str:
    """The Python that this process's virtual environment, if any, was made from.

    For another user it may lie out of reach: then the system's. Raises `StartFailed`.
    """
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    own = os.path.realpath(base)
    if uid is None or _reaches(uid, own):
        return own
    system = os.path.realpath("/usr/bin/python3")
    if os.path.exists(system) and _reaches(uid, system):
        return system
    raise StartFailed(
        f"user {uid} can run neither {own} nor /usr/bin/python3",
        fix="install Python where every user may read it",
    )


def _reaches(uid: int, path: str) -> bool:
    """Whether the modes of the file and of all folders above let any user in."""
    parents = [path, *(str(parent) for parent in Path(path).parents)]
    return all(os.stat(entry).st_mode & 0o001 or os.stat(entry).st_uid == uid for entry in parents)


def program_folders(uid: int | None = None) -> tuple[str, ...]:
    """Folders of the host with programs, `/usr` first, and the interpreter's where it lies apart.

    On a host that has not merged them, `/bin` and its like are folders of their own.
    """
    apart = [f"/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64")]
    found = ["/usr", *(path for path in apart if os.path.isdir(path) and not os.path.islink(path))]
    prefix = os.path.dirname(os.path.dirname(interpreter(uid)))
    if not any(prefix == path or prefix.startswith(path + "/") for path in found):
        found.append(prefix)
    return tuple(found)


class Zygote:
    """The owner's end of a running zygote."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        """Made by `launch`."""
        self._process = process
        self._control = control

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def spawn(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        """Ask for a sandbox: it answers over `fds[0]`. Raises `SandboxDied`."""
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(fds))
        except OSError as error:
            raise SandboxDied(
                f"the zygote is gone: {error}", fix="create again: a new one is started"
            ) from error

    def close(self) -> None:
        """End it and all its sandboxes; returns when they are gone."""
        with contextlib.suppress(OSError):  # it may be gone, or have no room for another word
            self._control.send(frames.FAREWELL, socket.MSG_DONTWAIT)
        self._control.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def launch(told: dict[str, Any], *, uid: int | None, timeout_s: float = 30) -> Zygote:
    """Start one and wait until it is ready; raises `StartFailed` with its reason.

    Args:
        told: What `inside.__main__.main` reads.
        uid: To drop to before anything else, for a rootless one started by root.
        timeout_s: Seconds to get ready.
    """
    source = os.memfd_create("zygote", 0)
    os.write(source, archive())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    handle = os.pidfd_open(os.getpid())
    try:
        process = await asyncio.to_thread(_start, source, theirs.fileno(), handle, uid)
    finally:
        theirs.close()
        os.close(handle)
        os.close(source)
    zygote = Zygote(process, ours)
    try:
        ours.send(json.dumps(told).encode())
        ours.settimeout(timeout_s)
        try:
            answer = json.loads(await asyncio.to_thread(ours.recv, 1 << 16) or b"{}")
        except ConnectionError:
            answer = {}
        ours.settimeout(None)
    except BaseException:
        process.kill()
        zygote.close()
        raise
    if "ready" not in answer:
        zygote.close()
        raise StartFailed(
            f"the zygote could not start: {answer.get('error', 'it ended without a word')}",
            fix="`training-gym sandbox doctor` says which tiers work here",
        )
    return zygote


def _start(source: int, control: int, handle: int, uid: int | None) -> subprocess.Popen[bytes]:
    """Through a trampoline that gives the descriptors the numbers the zygote expects."""
    trampoline = (  # first out of the way: a target may be another's source
        "import fcntl,os,sys;h=[fcntl.fcntl(int(x),0,64) for x in sys.argv[1:4]];"
        "[os.dup2(f,3+i) for i,f in enumerate(h)];os.closerange(6,1<<20);"
        "os.execv(sys.executable,[sys.executable,'-I','-S','/proc/self/fd/5'])"
    )
    identity: dict[str, Any] = {}
    if uid is not None:
        identity = {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.Popen(
        [interpreter(uid), "-I", "-S", "-c", trampoline, str(control), str(handle), str(source)],
        pass_fds=(control, handle, source),
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        **identity,
    )
