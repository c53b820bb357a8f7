"""Process 1's program where something else made the isolation, or nothing could.

In a namespace made by another tool it is process 1 there. Without namespaces it is the subreaper of
what it runs, stays outside of the confinement that each command enters, and ends their trees.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from training_gym.sandboxes.zygote.inside import frames, landlock, seccomp
from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.sandboxes.zygote.inside.child import limit_always, limit_resources
from training_gym.sandboxes.zygote.inside.command import (
    ImportState,
    become_interpreter,
    preload,
    use_site,
)
from training_gym.sandboxes.zygote.inside.init import LINK, WAKE, Init, open_wake
from training_gym.sandboxes.zygote.inside.sweep import Sweep

_GIVEN_LINK = 3
_SYSV_IPC = (29, 30, 31, 64, 66, 68) if sc.IS_X86 else (194, 196, 195, 190, 191, 186)


def main() -> None:
    """Serve one sandbox, described by the first argument."""
    told = json.loads(sys.argv[1])
    open_wake()
    use_site()
    imports = ImportState()
    preload(told["preload"])
    limit_always()
    limit_resources(told)
    sc.die_with_parent()
    is_first = os.getpid() == 1
    confine = None
    if told["confines"]:
        # Ctrl-C at the terminal is for the owner, who then ends this.
        sc.become_subreaper()
        confine = _confinement(told)
    else:
        sc.keep_capabilities()
        seccomp.Filter(seccomp.program(seccomp.INTERNET)).install()
    handles = [
        os.open(told["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),
        os.open(told["workspace"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
        os.pidfd_open(os.getpid()),
    ]
    sc.set_dumpable(False)
    init = Init(imports, Sweep(True, everything=is_first), confine=confine)
    become_interpreter()
    imports.close()
    with socket.socket(fileno=_GIVEN_LINK) as link:
        socket.send_fds(link, [frames.document(frames.READY, 0, {"missing": []})], handles)
        os.dup2(link.fileno(), LINK, inheritable=False)
    os.set_blocking(LINK, False)
    sc.close_range(3, WAKE[0] - 1)
    sc.close_range(LINK + 1)
    init.serve()


def _confinement(told: dict[str, Any]) -> Any:
    forbidden = seccomp.Filter(seccomp.program(seccomp.LOCAL, sockets=False, also=_SYSV_IPC))

    def confine() -> None:
        rules = landlock.Ruleset()
        rules.allow_reading(told["readable"])
        rules.allow_using([told["workspace"], "/dev/null", "/dev/zero", "/dev/full"])
        rules.enter()
        forbidden.install()

    return confine
