"""What a zygote does before its first fork, so that forks find it done.

A fork shares its parent's memory until it writes to it: each page then costs a fault and a copy,
and stays its own. An interpreter that runs code for the first time writes all over the place, as it
specialises instructions, fills caches and interns names. What the zygote has run a few times itself
its forks do with a fraction of that, in time and in memory.
"""

from __future__ import annotations

import os
import socket
import sys

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside.command import (
    ImportState,
    become_interpreter,
    use_interpreter,
)
from training_gym.sandboxes.zygote.inside.init import LINK, Init
from training_gym.sandboxes.zygote.inside.sweep import Sweep

_ROUNDS = 12
"""An interpreter specialises a function in its ninth call."""
_SOURCE = "print(sum(range(9)))"
_ENVIRONMENT = {"PATH": "/usr/bin"}
_REQUEST = {
    "timeout_s": 60.0,
    "keep": 1 << 20,
    "allowed": 1 << 20,
    "argv": [],
    "code": _SOURCE,
    "warm": True,
    "env": _ENVIRONMENT,
    "cwd": "/",
    "background": False,
}


def rehearse(imports: ImportState) -> None:
    """Prepare the interpreter for source, then be process 1 of a few commands."""
    become_interpreter()
    for _ in range(_ROUNDS):
        use_interpreter(_ENVIRONMENT, imports)
        exec(compile(_SOURCE, "<string>", "exec"), {})
        sys.stdout.flush()
    os.environ.clear()
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), LINK, inheritable=False)
    os.set_blocking(LINK, False)
    theirs.close()
    # Ends its own descendants only: outside of a sandbox, everything would be the host's.
    init = Init(imports, Sweep(True, everything=False), forks_ahead=False)
    parser = frames.Parser()
    for channel in range(_ROUNDS):
        begin = frames.document(frames.RUN, channel, _REQUEST)
        ours.sendall(begin + frames.frame(frames.STDIN, channel))
        told: set[int] = set()
        while frames.EXIT not in told:
            init.turn()
            told |= {kind for kind, _, _ in parser.feed(_arrived(ours))}
    ours.close()
    os.close(LINK)


def _arrived(link: socket.socket) -> bytes:
    try:
        return link.recv(1 << 16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""
