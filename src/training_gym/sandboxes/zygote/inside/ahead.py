"""Children of process 1 on their way to a command, and the one that is forked before it is needed.

A fork, and the page faults of the child that follow it, take longer than most commands do. So the
process of the next command is forked while nothing runs, makes everything ready that does not
depend on the command, and waits. It never waits while a command is alive: nobody is there who could
stop, trace or kill it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from training_gym.sandboxes.zygote.inside.loop import Loop

Become = Callable[[tuple[int, int, int], int, bytes], None]
"""What a child does: its ends of stdio; where it is told what to run, or -1; what it is to run."""


class Child:
    """A forked process that becomes a command, and our ends of what leads to it."""

    def __init__(self, pid: int, stdio: tuple[int, int, int], order: int) -> None:
        """`order`: where it is told what to run; -1: it knew when it was forked."""
        self.pid = pid
        self.handle = os.pidfd_open(pid)
        self.stdio = stdio
        self.order = order

    @classmethod
    def fork(cls, become: Become, payload: bytes = b"") -> Child:
        """Fork one that knows what to run, or, without a payload, waits for it to be told.

        Raises `OSError`.
        """
        pipes = [os.pipe() for _ in range(3 if payload else 4)]
        try:
            pid = os.fork()
        except OSError:
            for pair in pipes:
                for fd in pair:
                    os.close(fd)
            raise
        (stdin, ours_in), (ours_out, stdout), (ours_err, stderr), *orders = pipes
        if pid == 0:
            try:
                become((stdin, stdout, stderr), orders[0][0] if orders else -1, payload)
            finally:
                os._exit(126)
        for fd in (stdin, stdout, stderr, *(reader for reader, _ in orders)):
            os.close(fd)
        order = orders[0][1] if orders else -1
        return cls(pid, (ours_in, ours_out, ours_err), order)

    def tell(self, payload: bytes) -> None:
        """Say what to run, once. Raises `OSError` if it is gone."""
        try:
            left = memoryview(payload)
            while left:  # blocks while it reads: nobody is there who could stop it
                left = left[os.write(self.order, left) :]
        finally:
            os.close(self.order)

    def discard(self) -> None:
        """End and collect one that never became a command."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for fd in (self.handle, *self.stdio):
            os.close(fd)


def hear(order: int) -> bytes:
    """The child's side of `tell`; process 1 that ends without a word ends this process too."""
    payload = b""
    while piece := os.read(order, 1 << 20):
        payload += piece
    os.close(order)
    if not payload:
        os._exit(0)
    return payload


class Ahead:
    """The process of the next command."""

    def __init__(self, loop: Loop, become: Become) -> None:
        """Nobody yet."""
        self._loop = loop
        self._become = become
        self._child: Child | None = None

    @property
    def pids(self) -> set[int]:
        """Its pid, if there is one."""
        return set() if self._child is None else {self._child.pid}

    def fork(self) -> None:
        """Have one. Only while no command is alive."""
        if self._child is not None:
            return
        try:
            self._child = Child.fork(self._become)
        except OSError:  # the command itself will say why
            return
        self._loop.on_readable(self._child.handle, self.dismiss)  # killed for lack of memory

    def take(self, payload: bytes) -> Child | None:
        """Let it become this command; None if there is none."""
        child, self._child = self._child, None
        if child is None:
            return None
        self._loop.forget(child.handle)
        try:
            child.tell(payload)
        except OSError:  # killed for lack of memory, and nobody has noticed yet
            child.discard()
            return None
        return child

    def dismiss(self) -> None:
        """Have none."""
        child, self._child = self._child, None
        if child is not None:
            self._loop.forget(child.handle)
            os.close(child.order)
            child.discard()
