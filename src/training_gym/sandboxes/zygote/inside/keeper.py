"""Process 1's program where something else made the isolation, or nothing could.

In a namespace made by another tool it is process 1 there. Without namespaces it is the subreaper of
what it runs, stays outside of the confinement that each command enters, and ends their trees.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
from typing import Any

from training_gym.sandboxes.zygote.inside import frames, landlock, seccomp
from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.sandboxes.zygote.inside.child import limit_resources
from training_gym.sandboxes.zygote.inside.command import ImportState
from training_gym.sandboxes.zygote.inside.init import Init
from training_gym.sandboxes.zygote.inside.sweep import Sweep

_LINK = 3
_SYSV_IPC = (29, 30, 31, 64, 66, 68) if sc.IS_X86 else (194, 196, 195, 190, 191, 186)


def main() -> None:
    """Serve one sandbox, described by the first argument."""
    told = json.loads(sys.argv[1])
    imports = ImportState()
    for name in told["preload"]:
        __import__(name)
    limit_resources(told)
    sc.die_with_parent()
    is_first = os.getpid() == 1
    confine = None
    if told["confines"]:
        sc.become_subreaper()
        # Ctrl-C at the terminal is for the owner, who then ends this.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        confine = _confinement(told)
    else:
        sc.keep_capabilities()
        seccomp.install(seccomp.program(seccomp.INTERNET))
    link = socket.socket(fileno=fcntl.fcntl(_LINK, fcntl.F_DUPFD_CLOEXEC, 64))
    handles = [
        os.open(told["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),
        os.open(told["workspace"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
        os.pidfd_open(os.getpid()),
    ]
    sc.set_dumpable(False)
    ready = frames.document(frames.READY, 0, {"missing": []})
    socket.send_fds(link, [ready], handles)
    sc.close_from_except(_LINK, link.fileno())
    imports.close()
    Init(link, imports, Sweep(True, everything=is_first), confine=confine).serve()


def _confinement(told: dict[str, Any]) -> Any:
    program = seccomp.program(seccomp.LOCAL, sockets=False, also=_SYSV_IPC)

    def confine() -> None:
        rules = landlock.Ruleset()
        rules.allow_reading(told["readable"])
        rules.allow_using([told["workspace"], "/dev/null", "/dev/zero", "/dev/full"])
        rules.enter()
        seccomp.install(program)

    return confine
