"""A circuit breaker: a provider that fails most starts is left alone for a while."""

from __future__ import annotations

import asyncio
from collections import deque


class Breaker:
    """Opens on the share of failures among the latest starts; then lets one trial at a time by."""

    def __init__(self, *, window: int, failures: float, pause_s: float) -> None:
        """`window` starts are looked at; at a share of `failures` it opens for `pause_s`."""
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._failures = failures
        self._first_pause_s = pause_s
        self._pause_s = pause_s
        self._closed_again_at: float | None = None
        self._trial = False
        self.times_opened = 0

    @property
    def is_open(self) -> bool:
        """Whether starts are held back."""
        return self._closed_again_at is not None

    async def ready(self) -> None:
        """Return when a start may be tried; its outcome must then be told to `record`."""
        clock = asyncio.get_running_loop().time
        while self._closed_again_at is not None:
            wait_s = self._closed_again_at - clock()
            if wait_s <= 0 and not self._trial:
                self._trial = True
                return
            await asyncio.sleep(max(wait_s, self._first_pause_s / 20))

    def abandon(self) -> None:
        """The start that `ready` let by came to no outcome."""
        self._trial = False

    def record(self, ok: bool) -> None:
        """Tell how a start ended."""
        self._trial = False
        self._outcomes.append(ok)
        if ok:
            if self._closed_again_at is not None:
                self._outcomes.clear()
            self._closed_again_at = None
            self._pause_s = self._first_pause_s
        elif self._closed_again_at is not None:
            self._pause_s = min(60.0, 2 * self._pause_s)
            self._open()
        elif self._is_failing():
            self.times_opened += 1
            self._open()

    def _is_failing(self) -> bool:
        full = len(self._outcomes) >= (self._outcomes.maxlen or 0) // 2
        return full and self._outcomes.count(False) >= self._failures * len(self._outcomes)

    def _open(self) -> None:
        self._closed_again_at = asyncio.get_running_loop().time() + self._pause_s
