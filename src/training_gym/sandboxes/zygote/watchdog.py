"""The memory limit where no control group enforces it: watch from outside, kill what exceeds it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from training_gym.spec.sandboxes import MIB

PERIOD_S = 0.03
"""Between two looks; a process can gain about 100 MB meanwhile."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def private_bytes(pid: int) -> int:
    """Memory that the process and its descendants share with no file, now."""
    total = 0
    todo = [pid]
    while todo:
        here = todo.pop()
        try:
            with open(f"/proc/{here}/statm", encoding="ascii") as statm:
                _, resident, shared, *_ = (int(word) for word in statm.read().split())
            total += (resident - shared) * _PAGE
            for thread in os.listdir(f"/proc/{here}/task"):
                with open(f"/proc/{here}/task/{thread}/children", encoding="ascii") as children:
                    todo += [int(child) for child in children.read().split()]
        except OSError:  # it ended meanwhile
            continue
    return total


class Watchdog:
    """Looks after all sandboxes of a provider."""

    def __init__(self) -> None:
        """Idle until something is watched."""
        self._watched: dict[int, tuple[int, Callable[[], None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, pid: int, memory_mb: int, exceeded: Callable[[], None]) -> None:
        """Call `exceeded` once when the tree below `pid` holds more."""
        self._watched[pid] = (memory_mb * MIB, exceeded)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def forget(self, pid: int) -> None:
        """It is gone."""
        self._watched.pop(pid, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self._watched.clear()

    async def _run(self) -> None:
        while self._watched:
            # In a thread: hundreds of trees must not hold up the event loop, nor it this.
            over = await asyncio.to_thread(self._look, dict(self._watched))
            for pid in over:
                entry = self._watched.pop(pid, None)
                if entry is not None:
                    entry[1]()
            await asyncio.sleep(PERIOD_S)
        self._task = None

    @staticmethod
    def _look(watched: dict[int, tuple[int, Callable[[], None]]]) -> list[int]:
        return [pid for pid, (limit, _) in watched.items() if private_bytes(pid) > limit]
