"""The life of one sandbox: its process 1, watched through a pidfd, and why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from training_gym.sandboxes.zygote.parts import Parts
from training_gym.spec.sandboxes import OutOfMemory, SandboxDied, SandboxError

_UNKILLABLE_S = 10.0


class Life:
    """From the start of process 1 until it is gone, and with it all others."""

    def __init__(self, sandbox_id: str, parts: Parts, oom_kills: Callable[[], int]) -> None:
        """`oom_kills` counts processes of it that were killed for lack of memory."""
        self._id = sandbox_id
        self._parts = parts
        self.oom_kills = oom_kills
        self._has_files = True
        self._gone = asyncio.Event()
        self._why: SandboxError | None = None

    def watch(self, ended: Callable[[SandboxError], None]) -> None:
        """Call `ended` once, with the reason, when it is over."""
        self._ended = ended
        asyncio.get_running_loop().add_reader(self._parts.handle, self._process_ended)

    @property
    def is_over(self) -> bool:
        """Whether process 1 is gone."""
        return self._gone.is_set()

    def check(self) -> None:
        """Raise the reason if it is over, or nothing may be done in it any more."""
        if self._why is not None or self._gone.is_set():
            raise self._reason()

    def condemn(self, why: SandboxError) -> None:
        """Let nothing more be done in it; what runs goes on."""
        self._why = why

    def kill(self, why: SandboxError | None = None) -> None:
        """End process 1, and with it all others; does not wait."""
        self._why = why or self._why
        if not self._gone.is_set():
            self._close_files()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._parts.handle, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it and wait until it is gone; raises `SandboxDied` if it cannot be ended."""
        if self._gone.is_set():
            return
        self.kill(self._reason())
        try:
            await asyncio.wait_for(self._gone.wait(), _UNKILLABLE_S)
        except TimeoutError:
            raise SandboxDied(
                f"process 1 of sandbox {self._id} cannot be ended",
                fix="it hangs in the kernel: restart the machine if it stays",
            ) from None

    def _process_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._parts.handle)
        if self._why is None and self.oom_kills():
            self._why = OutOfMemory(
                f"sandbox {self._id} was ended for lack of memory",
                fix="raise resources.memory_mb if it deserves more",
            )
        self._gone.set()
        self._close_files()
        os.close(self._parts.handle)
        self._ended(self._reason())

    def _close_files(self) -> None:
        """Before its processes end: the last to hold a tree takes it apart, and we have no time."""
        if self._has_files:
            self._has_files = False
            os.close(self._parts.root)
            os.close(self._parts.state)

    def _reason(self) -> SandboxError:
        return self._why or SandboxDied(f"sandbox {self._id} is gone", fix="use a fresh one")
