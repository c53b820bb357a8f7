"""What a pool does by itself now and then: ages, probes, surplus, and what dead owners left."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from training_gym.sandboxes.pool.leases import reap
from training_gym.sandboxes.pool.shelf import Shelf, Spare
from training_gym.spec.sandboxes import ExecRequest, SandboxError

if TYPE_CHECKING:
    from training_gym.sandboxes.pool.pool import SandboxPool

_ANSWER = ExecRequest(argv=("true",))


class Upkeep:
    """The periodic part of one pool."""

    def __init__(self, pool: SandboxPool) -> None:
        """Nothing happens before `run`."""
        self._pool = pool
        self._probes: set[asyncio.Task[None]] = set()
        self.expired = self.dead = self.reaped = 0

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        reap_at = clock()
        try:
            while True:
                if clock() >= reap_at:
                    reap_at = clock() + self._pool.policy.reap_every_s
                    await self._reap_quietly()
                for shelf in self._pool.shelves:
                    self._look_after(shelf, clock())
                await asyncio.sleep(self._pool.policy.check_every_s)
        finally:
            for probe in self._probes:
                probe.cancel()
            await asyncio.gather(*self._probes, return_exceptions=True)

    async def reap(self) -> int:
        """Destroy what dead owners left; returns how many sandboxes."""
        pool = self._pool
        settle_s = 2 * pool.policy.start_timeout_s
        count = await reap(pool.provider, pool.folder, settle_s=settle_s)
        self.reaped += count
        return count

    async def lives(self, spare: Spare) -> bool:
        """Whether it answers; one that does not is destroyed."""
        request = _ANSWER.changed(timeout_s=self._pool.policy.probe_timeout_s)
        try:
            async with asyncio.timeout(self._pool.policy.probe_timeout_s + 1.0):
                # Any answer will do: an image need not have the program.
                await spare.started.sandbox.exec(request)
        except asyncio.CancelledError:
            self._pool.disposal.discard(spare.started)
            raise
        except Exception:  # noqa: BLE001 - the boundary to the provider: whatever it is, it is dead
            self.dead += 1
            self._pool.disposal.discard(spare.started)
            return False
        spare.heard_at = asyncio.get_running_loop().time()
        return True

    async def _reap_quietly(self) -> None:
        # A provider that cannot be asked just now: the journals stay for the next round.
        with contextlib.suppress(SandboxError):
            await self.reap()

    def _look_after(self, shelf: Shelf, now: float) -> None:
        policy = self._pool.policy
        old = [spare for spare in shelf.ready if now - spare.made_at > policy.spare_ttl_s]
        surplus = max(0, shelf.surplus(now) - len(old))
        for spare in [*old, *[spare for spare in shelf.ready if spare not in old][:surplus]]:
            if not spare.probing:
                shelf.ready.remove(spare)
                self._pool.disposal.discard(spare.started)
                self.expired += 1
        for spare in shelf.ready:
            # Asked at half the age, so that an acquire need not ask.
            if not spare.probing and now - spare.heard_at > policy.stale_after_s / 2:
                spare.probing = True
                probe = asyncio.create_task(self._probe(shelf, spare))
                self._probes.add(probe)
                probe.add_done_callback(self._probes.discard)
        self._pool.restock(shelf)

    async def _probe(self, shelf: Shelf, spare: Spare) -> None:
        if await self.lives(spare):
            spare.probing = False
        else:
            shelf.ready.remove(spare)
            self._pool.restock(shelf)
