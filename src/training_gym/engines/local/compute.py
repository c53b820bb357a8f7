"""One thread for all tensor work, so that the event loop never waits for a kernel.

Sampling and training take turns on it; torch's own threads work below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from training_gym.sandboxes.pool import accelerator

P = ParamSpec("P")
T = TypeVar("T")


class Compute:
    """Runs functions one at a time on a thread of its own."""

    def __init__(self) -> None:
        """Start no thread yet; the first call does."""
        self._calls = 0
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` on the compute thread; errors come back as they are."""
        loop = asyncio.get_running_loop()
        self._count(1)
        try:
            return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        """Pools of sandboxes want to know whether anybody waits for them in vain."""
        was, self._calls = self._calls, self._calls + change
        if bool(was) != bool(self._calls):
            accelerator.tell(busy=bool(self._calls))

    def close(self) -> None:
        """Let the running call end and stop."""
        self._executor.shutdown(wait=True)
        accelerator.fall_silent()
