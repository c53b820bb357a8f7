"""What the run was asked to do while it runs: stop, stop now, write a checkpoint, pause, go on.

The job runner delivers requests as signals. The first interrupt ends the run after the step at
hand; a second one, or a termination, ends it at once.
"""

from __future__ import annotations

import asyncio
import signal
import sys

STOPPED_NOW = 143
"""Exit status of a process that was told to end at once (128 + SIGTERM)."""


class Requests:
    """Flags set by signals."""

    def __init__(self) -> None:
        """Nothing has been asked yet."""
        self.stop = asyncio.Event()
        self.checkpoint = False
        self.paused = False
        self._changed = asyncio.Event()

    def listen(self) -> None:
        """Take over SIGINT, SIGTERM, SIGUSR1, SIGTSTP and SIGCONT in the running loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGTERM, _leave)
        loop.add_signal_handler(signal.SIGUSR1, self._checkpoint_wanted)
        loop.add_signal_handler(signal.SIGTSTP, self._hold, True)
        loop.add_signal_handler(signal.SIGCONT, self._hold, False)

    async def unpaused(self) -> None:
        """Return once the run may go on, or is to stop."""
        while self.paused and not self.stop.is_set():
            self._changed.clear()
            await self._changed.wait()

    def _interrupted(self) -> None:
        if self.stop.is_set():
            _leave()
        self.stop.set()
        self._changed.set()
        print("stopping after this step", file=sys.stderr, flush=True)  # noqa: T201

    def _checkpoint_wanted(self) -> None:
        self.checkpoint = True

    def _hold(self, paused: bool) -> None:
        self.paused = paused
        self._changed.set()


def _leave() -> None:
    """End the process without waiting for the kernel that is running."""
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED_NOW)
