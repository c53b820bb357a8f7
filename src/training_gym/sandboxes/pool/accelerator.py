"""What this process's accelerator is doing, told once to all pools that are open in it.

Who trains knows whether the accelerator has work, who plays episodes knows the pools, and neither
knows the other: both meet here.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_gym.sandboxes.pool.pool import SandboxPool

_OPEN: dict[SandboxPool, asyncio.AbstractEventLoop] = {}
_TOLD: list[bool] = []
"""The latest that was told; empty: nobody tells."""


def tell(*, busy: bool) -> None:
    """The accelerator has work from now on, or none. From any thread."""
    _TOLD[:] = [busy]
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    for pool, loop in list(_OPEN.items()):
        if loop is here:
            pool.accelerator(busy=busy)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(partial(pool.accelerator, busy=busy))


def fall_silent() -> None:
    """Nobody will tell any more; pools that are opened later estimate again."""
    _TOLD.clear()


def join(pool: SandboxPool) -> None:
    """A pool was opened, in the running loop."""
    _OPEN[pool] = asyncio.get_running_loop()
    if _TOLD:
        pool.accelerator(busy=_TOLD[0])


def leave(pool: SandboxPool) -> None:
    """It was closed."""
    _OPEN.pop(pool, None)
