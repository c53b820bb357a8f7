"""A poll loop for one thread: readiness callbacks and deadlines. Never imports anything late."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

Callback = Callable[[], object]


class Loop:
    """Calls back when descriptors are ready or a time has come."""

    def __init__(self) -> None:
        """An empty loop."""
        self._poll = select.poll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._timers: dict[object, tuple[float, Callback]] = {}

    def on_readable(self, fd: int, callback: Callback | None) -> None:
        """Call back while `fd` is readable or at its end; None: no more."""
        self._set(self._readers, fd, callback)

    def on_writable(self, fd: int, callback: Callback | None) -> None:
        """Call back while `fd` is writable or broken; None: no more."""
        self._set(self._writers, fd, callback)

    def forget(self, fd: int) -> None:
        """Before closing it."""
        self.on_readable(fd, None)
        self.on_writable(fd, None)

    def at(self, key: object, when: float, callback: Callback) -> None:
        """Call back once at a monotonic time; `key` names the timer."""
        self._timers[key] = (when, callback)

    def cancel(self, key: object) -> None:
        """Forget a timer."""
        self._timers.pop(key, None)

    def turn(self) -> None:
        """Wait for something and handle all that is due."""
        wait_ms = None
        if self._timers:
            soonest = min(when for when, _ in self._timers.values())
            wait_ms = max(0.0, soonest - time.monotonic()) * 1e3
        for fd, event in self._poll.poll(wait_ms):
            # A callback may have closed another descriptor of this round: look each one up.
            if event & ~select.POLLOUT and fd in self._readers:
                self._readers[fd]()
            if event & ~select.POLLIN and fd in self._writers:
                self._writers[fd]()
        now = time.monotonic()
        for key, (when, callback) in list(self._timers.items()):
            if when <= now and key in self._timers:
                del self._timers[key]
                callback()

    def _set(self, table: dict[int, Callback], fd: int, callback: Callback | None) -> None:
        if callback is None:
            if table.pop(fd, None) is None:
                return
        else:
            table[fd] = callback
        events = (select.POLLIN if fd in self._readers else 0) | (
            select.POLLOUT if fd in self._writers else 0
        )
        if events:
            self._poll.register(fd, events)
        else:
            self._poll.unregister(fd)
