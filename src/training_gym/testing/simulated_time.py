"""An event loop whose clock jumps: hours of waiting in the time it takes to compute them.

`asyncio.sleep`, timeouts and `loop.time()` work as ever. Whenever nothing can run before the next
timer, the clock is set to that timer instead of waiting for it. Files of the operating system
(sockets, pipes) are still looked at, but never waited for, so what runs here must not need them.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_simulated(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` in simulated time, which begins at 0."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own."""

    def __init__(self) -> None:
        """At time 0."""
        self._now = 0.0
        super().__init__(_NeverWaiting(self))

    def time(self) -> float:
        """Simulated seconds."""
        return self._now

    def skip(self, seconds: float) -> None:
        """Let so much time have passed."""
        self._now += seconds


class _NeverWaiting(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set: this would wait for ever")
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not found and timeout > 0:
            self._loop.skip(timeout)
        return found
