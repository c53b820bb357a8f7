"""What a zygote does last: end what it forked, and remove what a dead owner cannot."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

from training_gym.sandboxes.zygote.inside import folders

_PATIENCE_S = 60.0


class Janitor:
    """Holds on to folders that the zygote can no longer reach by path."""

    def __init__(self, home: str, folder: str, cgroups: Iterable[tuple[str, str]]) -> None:
        """Opened before the zygote leaves the host's tree.

        Args:
            home: Where owners keep their folders.
            folder: This owner's, below it.
            cgroups: Folders of the host's cgroup trees, each with the prefix of our groups in it.
        """
        self._home = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folder = folder
        self._cgroups = [
            (os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), prefix)
            for parent, prefix in cgroups
        ]

    def clean(self, children: Iterable[int], owner_ended: Callable[[], bool]) -> NoReturn:
        """End all sandboxes, then remove what an owner left that has ended, and exit."""
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        if owner_ended():
            folders.remove(self._folder, self._home)
            self._remove_cgroups()
        os._exit(0)

    def _remove_cgroups(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            left = 0
            for parent, prefix in self._cgroups:
                for name in os.listdir(parent):
                    if name.startswith(prefix):
                        try:
                            os.rmdir(name, dir_fd=parent)
                        except FileNotFoundError:
                            continue  # another zygote of this owner was faster
                        except OSError:
                            left += 1
            if not left:
                return
            time.sleep(0.02)
