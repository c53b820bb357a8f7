"""Ending what commands leave behind, and only that.

Without background commands everything but process 1 is a leftover. With some, what descends from
their supervisors is kept: a supervisor is a subreaper, so whatever its command starts stays below
it, and nothing else can get there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from training_gym.sandboxes.zygote.inside import syscalls as sc

_PATIENCE_S = 3.0
"""How long killed processes may take to go; under load 0.1 s was too short."""


class Sweep:
    """Knows which processes are to be kept."""

    def __init__(self, has_proc: bool, *, everything: bool = True) -> None:
        """Without `/proc` background commands cannot be told from leftovers.

        `everything`: this is process 1, and all others are ours; else only descendants are.
        """
        self._has_proc = has_proc
        self._everything = everything
        self._supervisors: set[int] = set()

    def keep(self, supervisor: int) -> None:
        """A background command has begun."""
        self._supervisors.add(supervisor)

    def release(self, supervisor: int) -> None:
        """It has ended."""
        self._supervisors.discard(supervisor)

    def end_leftovers(self) -> tuple[int, bool]:
        """Kill and reap; returns how many, and whether all are gone."""
        deadline = time.monotonic() + _PATIENCE_S
        simple = self._everything and not (self._supervisors and self._has_proc)
        kill = _kill_all if simple else self._kill_others
        count, nap_s = 0, 0.0002
        while kill():
            count += self.reap_orphans(self._supervisors)
            if time.monotonic() > deadline:
                return count, False
            time.sleep(nap_s)
            nap_s = min(nap_s * 2, 0.02)
        return count + self.reap_orphans(self._supervisors), True

    def reap_orphans(self, own: set[int]) -> int:
        """Collect dead children that are nobody's."""
        count = 0
        while True:
            try:
                # Look before taking: a command's own status belongs to its `Running`.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return count
            if found is None or found.si_pid in own:
                return count
            os.waitpid(found.si_pid, 0)
            count += 1

    def supervise(self, become: Callable[[], NoReturn]) -> NoReturn:
        """Run a background command and end all it started with it; never returns."""
        sc.become_subreaper()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        command = os.fork()
        if command == 0:
            become()
        sc.close_range(3)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGKILL))
        status = 0
        while True:
            try:
                pid, ended = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            if pid == command:
                status = ended
                end_descendants(os.getpid())
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
            os.kill(os.getpid(), -code)
        os._exit(code)

    def _kill_others(self) -> bool:
        """One round; whether something was there to kill."""
        first = self._candidates() - _trees(self._supervisors)
        # Twice, because a process whose parent dies meanwhile is for a moment in neither place.
        strangers = (first & self._candidates()) - _trees(self._supervisors) - {os.getpid()}
        for pid in strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(strangers)

    def _candidates(self) -> set[int]:
        return _processes() if self._everything else _trees({os.getpid()})

    def end_all(self) -> None:
        """The owner is gone: end background commands too."""
        if not self._everything:
            end_descendants(os.getpid())


def _kill_all() -> bool:
    """Kill everything but process 1; whether there was something."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}


def _trees(roots: set[int]) -> set[int]:
    """The roots and their descendants, dead ones that nobody has reaped included."""
    found, todo = set(roots), list(roots)
    while todo:
        for child in _children(todo.pop()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _children(pid: int) -> list[int]:
    text = b""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            # Not open(): it looks its codec up among the modules, which process 1 cannot load.
            listing = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            while data := os.read(listing, 1 << 16):
                text += data
            os.close(listing)
    except OSError:  # it ended meanwhile
        pass
    return [int(child) for child in text.split()]


def end_descendants(supervisor: int, patience_s: float = float("inf")) -> None:
    """Kill all below this process; those that appear meanwhile in the next round."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        living = _trees({supervisor}) - {supervisor}
        if not living:
            return
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)
