"""One thread for all tensor work, so that the event loop never waits for a kernel.

Sampling and training take turns on it; torch's own threads work below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Compute:
    """Runs functions one at a time on a thread of its own."""

    def __init__(self) -> None:
        """Start no thread yet; the first call does."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` on the compute thread; errors come back as they are."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let the running call end and stop."""
        self._executor.shutdown(wait=True)
