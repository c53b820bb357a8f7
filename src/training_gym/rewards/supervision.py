"""What a reward's code starts ends with its worker, even if it has left its process group.

Before it loads anything of the user's, a worker forks: the child goes on as the worker, its parent
stays behind and runs nothing but the few lines below. Orphans among the worker's descendants become
the supervisor's children (Linux only), so it finds and ends whatever the worker leaves. Elsewhere
there is no supervisor, and what has left the process group stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import NoReturn

IS_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PATIENCE_S = 3.0
"""How long what was killed may take to go; what belongs to another user never does."""


def die_with(parent: int, number: int = signal.SIGKILL) -> bool:
    """Have Linux signal this process at its parent's end, even while native code runs in it.

    False: the parent is gone already.
    """
    if IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def fork_supervised(parent: int) -> int:
    """Go on in a child in a session of its own; returns the process that it is to end with."""
    if not IS_LINUX:
        return parent
    from training_gym.sandboxes.zygote.inside.syscalls import become_subreaper

    supervisor = os.getpid()
    become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if not die_with(parent, signal.SIGTERM):
        os._exit(1)
    worker = os.fork()
    if worker:
        _supervise(worker)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return supervisor


def end(process: int) -> None:
    """Have what `fork_supervised` left behind, or the group of a worker without, end at once."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if IS_LINUX:
            os.kill(process, signal.SIGTERM)
        else:
            os.killpg(process, signal.SIGKILL)


def _supervise(worker: int) -> NoReturn:
    """Wait for the worker, end what it leaves, and end as it did."""
    from training_gym.sandboxes.zygote.inside.sweep import end_descendants
    from training_gym.sandboxes.zygote.inside.syscalls import close_range

    def end_worker(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just been waited for
            os.kill(worker, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end_worker)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    close_range(3)  # its connection must close when the worker ends
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) and found.si_pid != worker:
        os.waitpid(found.si_pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)  # where /proc does not tell of children, all there is
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    end_descendants(os.getpid(), _PATIENCE_S)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))
