"""The end of sandboxes: tried until it succeeds, written down only then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from training_gym.sandboxes.pool.leases import LEASE_TAG, LeaseJournal
from training_gym.spec.sandboxes import Sandbox, SandboxProvider

_RETRY_S = 0.1
_RETRY_LIMIT_S = 30.0


@dataclass(frozen=True, eq=False)
class Started:
    """A living sandbox and the lease it is written down under."""

    sandbox: Sandbox
    lease: str


class Disposal:
    """Destroys in the background; nobody waits for it but `drain`."""

    def __init__(self, provider: SandboxProvider, journal: LeaseJournal) -> None:
        """Of one provider, for one owner."""
        self._provider = provider
        self._journal = journal
        self._is_remote = provider.capabilities().remote
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def discard(self, started: Started) -> asyncio.Task[None]:
        """Destroy a sandbox; the task ends when it is gone."""
        return self._spawn(self._destroy(started))

    def uncertain(self, lease: str) -> None:
        """A creation failed. What a remote provider may have made of it all the same, goes."""
        if self._is_remote:
            self._spawn(self._sweep(lease))
        else:
            self._journal.end(lease)

    async def drain(self, timeout_s: float) -> int:
        """Wait for what is under way; give up the rest, which stays in the journal: how many."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return len(left)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _destroy(self, started: Started) -> None:
        pause_s = _RETRY_S
        while True:
            try:
                await started.sandbox.destroy()
                break
            except Exception:  # noqa: BLE001 - the boundary to the provider
                await asyncio.sleep(pause_s)
                pause_s = min(_RETRY_LIMIT_S, 2 * pause_s)
        self._journal.end(started.lease)

    async def _sweep(self, lease: str) -> None:
        pause_s = _RETRY_S
        while True:
            try:
                for info in await self._provider.list({LEASE_TAG: lease}):
                    await self._provider.destroy(info.id)
                break
            except Exception:  # noqa: BLE001 - the boundary to the provider
                await asyncio.sleep(pause_s)
                pause_s = min(_RETRY_LIMIT_S, 2 * pause_s)
        self._journal.end(lease)
