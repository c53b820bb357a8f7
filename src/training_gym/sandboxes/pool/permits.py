"""Limits that hold over all processes of one home: creations a second, and starts at once.

Both live in files locked with `flock`. The kernel drops a lock with its last holder, so a killed
process gives its permits back by dying. Waiting is polling: processes cannot wake each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

_STATE = struct.Struct("<d")


class CreateRate:
    """At most `per_s` creations a second, `burst` of them at once after a pause.

    The file holds one number: the time, on the machine's monotonic clock, from which the next
    creation is due if they come evenly (the virtual scheduling form of a token bucket). A process
    that dies after taking its turn has cost one turn and nothing else.
    """

    def __init__(self, path: Path, *, per_s: float, burst: int = 1) -> None:
        """Keep the count in `path`, whose folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._gap_s = 1.0 / per_s
        self._slack_s = (burst - 1) * self._gap_s

    async def take(self) -> None:
        """Return when one creation may begin."""
        while (wait_s := self._book(asyncio.get_running_loop().time())) is None:
            await asyncio.sleep(0.001)
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def try_take(self) -> bool:
        """Take a turn only if it is due now."""
        return self._book(asyncio.get_running_loop().time(), only_now=True) == 0.0

    def postpone(self, seconds: float) -> None:
        """Nobody creates for so long: the provider said so."""
        now = asyncio.get_running_loop().time()
        with self._locked(wait=True) as file:
            if file is not None:
                due = self._read(file, now)
                self._write(file, max(due, now + seconds))

    def _book(self, now: float, *, only_now: bool = False) -> float | None:
        """Seconds to wait for the turn that was booked; None: busy, or not due and not booked."""
        with self._locked() as file:
            if file is None:
                return None
            due = self._read(file, now)
            wait_s = max(0.0, due - self._slack_s - now)
            if only_now and wait_s > 0:
                return None
            self._write(file, max(due, now) + self._gap_s)
            return wait_s

    def _read(self, file: int, now: float) -> float:
        data = os.pread(file, _STATE.size, 0)
        if len(data) < _STATE.size:
            return now
        due: float = _STATE.unpack(data)[0]
        # The clock begins anew at boot: a turn further off than an hour is from before.
        return due if due < now + 3600 else now

    def _write(self, file: int, due: float) -> None:
        os.pwrite(file, _STATE.pack(due), 0)

    @contextlib.contextmanager
    def _locked(self, *, wait: bool = False) -> Iterator[int | None]:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield None
            else:
                yield file
        finally:
            os.close(file)


class StartingPermits:
    """At most `limit` sandboxes starting at once: one locked file a permit."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Keep the files in `folder`, which is made. `limit` may differ between processes."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._order = list(range(limit))
        random.Random(os.getpid()).shuffle(self._order)
        self.held = 0
        """Permits held by this object."""

    def try_take(self) -> int | None:
        """A permit to give back with `give_back`, or None if all are held."""
        for number in self._order:
            file = os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self.held += 1
            return file
        return None

    def give_back(self, permit: int) -> None:
        """End a permit. Unlocked by name: a forked child may still hold the open file."""
        fcntl.flock(permit, fcntl.LOCK_UN)
        os.close(permit)
        self.held -= 1

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold one permit, waiting for it."""
        permit = await self.take()
        try:
            yield
        finally:
            self.give_back(permit)

    async def take(self) -> int:
        """Wait for a permit."""
        pause_s = 0.002
        while (permit := self.try_take()) is None:
            await asyncio.sleep(pause_s)
            pause_s = min(0.05, pause_s * 1.5)
        return permit
