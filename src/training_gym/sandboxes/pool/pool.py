"""The warm pool: sandboxes ready before they are needed, used once, never left behind.

Stock is kept by kind (`SandboxSpec.key`) by the formula of `sizing` with rates and times learnt on
the way, retargeted at every event. Limits on creation hold over all processes of one home, and
every sandbox is in the journal of leases from before it is asked for until after it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

from training_gym.sandboxes.pool import accelerator
from training_gym.sandboxes.pool.disposal import Disposal, Started
from training_gym.sandboxes.pool.kinds import Kinds
from training_gym.sandboxes.pool.lease import Lease
from training_gym.sandboxes.pool.leases import LeaseJournal, leases_directory
from training_gym.sandboxes.pool.metrics import Meter, PoolMetrics
from training_gym.sandboxes.pool.orders import Orders
from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.sandboxes.pool.reading import read
from training_gym.sandboxes.pool.shelf import Shelf, Waiter
from training_gym.sandboxes.pool.starts import Limits, Starter
from training_gym.sandboxes.pool.upkeep import Upkeep
from training_gym.spec.sandboxes import (
    SandboxError,
    SandboxProvider,
    SandboxSpec,
    StartTimeout,
)

_CLOSE_S = 30.0


class SandboxPool:
    """Sandboxes of one provider. Open it with `async with`; the provider stays its caller's."""

    def __init__(
        self,
        provider: SandboxProvider,
        policy: PoolPolicy | None = None,
        *,
        folder: Path | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            provider: What makes the sandboxes.
            policy: What the pool may do.
            folder: Where journals and shared limits lie; `$TRAINING_GYM_HOME/leases` and
                `limits` beside it.
        """
        self.provider = provider
        self.policy = policy or PoolPolicy()
        self._folder = folder or leases_directory()
        able = provider.capabilities()
        self._creates_per_s = self.policy.creates_per_s or able.creates_per_s
        self._max_live = self.policy.max_live or able.max_concurrent
        self._kinds = Kinds(provider, self.policy)
        self._in_use: set[Started] = set()
        self._is_open = False
        self._upkeep_task: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Become an owner of leases and begin upkeep; what dead owners left goes first thing."""
        self._journal = LeaseJournal(self.provider.name, self._folder)
        self._disposal = Disposal(self.provider, self._journal)
        self._meter = Meter(self._now())
        self._starter = Starter(
            self.provider,
            self.policy,
            self._journal,
            Limits.of(self.provider.name, self._folder, self.policy, self._creates_per_s),
            self._disposal,
            make_room=lambda spec: self._orders.make_room(spec),
        )
        self._orders = Orders(
            self._kinds,
            self._starter,
            self._disposal,
            self._meter,
            in_use=self._in_use,
            max_live=self._max_live,
        )
        self._is_open = True
        accelerator.join(self)
        self._upkeep = Upkeep(self)
        self._upkeep_task = asyncio.create_task(self._upkeep.run())
        return self

    async def acquire(self, spec: SandboxSpec, *, timeout_s: float = 600.0) -> Lease:
        """A sandbox of this kind that nobody used before; at once if a spare is ready.

        Raises `StartFailed` or `SandboxUnsupported` if such a one cannot be, the provider's error
        if it failed too often, `StartTimeout` if none came in time.
        """
        self._check_open()
        begin = self._now()
        shelf = self._kinds.latest(spec) or await self._kinds.find(spec, begin)
        shelf.record_acquire(begin)
        spare = shelf.take_fresh(begin)
        started = spare.started if spare else await self._acquire_slowly(shelf, timeout_s)
        self._in_use.add(started)
        wait_s = self._now() - begin
        self._meter.acquired(wait_s, missed=spare is None)
        # The order for the next one is placed right after this one is handed over.
        asyncio.get_running_loop().call_soon(self._orders.restock, shelf)
        return Lease(
            started,
            wait_s,
            missed=spare is None,
            end=self._release,
            again=lambda: self._replace(spec),
        )

    async def warm(self, spec: SandboxSpec, spares: int, *, timeout_s: float = 600.0) -> None:
        """Keep at least so many spares from now on, and return when they are ready.

        Before a synchronous step: `sizing.burst_spares` says how many. Zero takes it back.
        """
        self._check_open()
        shelf = self._kinds.latest(spec) or await self._kinds.find(spec, self._now())
        shelf.floor = spares
        self._orders.restock(shelf)
        deadline = self._now() + timeout_s
        while len(shelf.ready) < min(spares, self.policy.max_spares) and not shelf.broken:
            if self._now() >= deadline:
                raise self._too_late(shelf, timeout_s)
            await asyncio.wait(shelf.orders, timeout=0.05) if shelf.orders else (
                await asyncio.sleep(0.01)
            )
        if shelf.broken and shelf.fault is not None:
            raise shelf.fault

    def accelerator(self, *, busy: bool) -> None:
        """Tell whether the accelerator has work: makes `blocked_s` exact.

        The embedded engine does so for all pools of its process, by `accelerator.tell`.
        """
        self._meter.accelerator(self._now(), busy)

    async def reap(self) -> int:
        """Destroy what dead owners left with this provider; returns how many sandboxes."""
        return await self._upkeep.reap()

    def metrics(self) -> PoolMetrics:
        """Everything it measures, now."""
        return read(
            self._now(),
            self._meter,
            self._starter,
            self._upkeep,
            self.shelves,
            in_use=len(self._in_use),
            undestroyed=len(self._disposal),
            create_limit_per_s=self._creates_per_s,
        )

    async def close(self) -> int:
        """End all its sandboxes; returns how many the provider did not destroy in time.

        Those stay in the journal, for the next pool to destroy.
        """
        if not self._is_open:
            return 0
        self._is_open = False
        self._orders.stop()
        accelerator.leave(self)
        orders = [order for shelf in self.shelves for order in shelf.orders]
        tasks = [*orders, *([self._upkeep_task] if self._upkeep_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._starter.settle()
        for shelf in self.shelves:
            for waiter in shelf.waiters:
                if not waiter.done():
                    waiter.set_exception(_closed())
            while (spare := shelf.take_any()) is not None:
                self._disposal.discard(spare.started)
        for started in list(self._in_use):
            self._release(started)
        left = await self._disposal.drain(_CLOSE_S)
        self._journal.close()
        return left

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # ---------------------------------------------------------------- what upkeep uses

    @property
    def shelves(self) -> list[Shelf]:
        """The stock by kind."""
        return self._kinds.shelves

    @property
    def folder(self) -> Path:
        """Where journals and shared limits lie."""
        return self._folder

    @property
    def disposal(self) -> Disposal:
        """Where sandboxes end."""
        return self._disposal

    def restock(self, shelf: Shelf) -> None:
        """Order what the kind lacks, as far as there is room."""
        self._orders.restock(shelf)

    # ---------------------------------------------------------------- inside

    async def _acquire_slowly(self, shelf: Shelf, timeout_s: float) -> Started:
        """A stale spare that turns out to live, else the next that is made."""
        while (spare := shelf.take_any()) is not None:
            if await self._upkeep.lives(spare):
                return spare.started
        waiter: Waiter = asyncio.get_running_loop().create_future()
        shelf.waiters.append(waiter)
        self._orders.restock(shelf)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except BaseException as error:
            self._withdraw(shelf, waiter)
            if isinstance(error, TimeoutError):
                raise self._too_late(shelf, timeout_s) from shelf.fault
            raise

    def _withdraw(self, shelf: Shelf, waiter: Waiter) -> None:
        """Nobody waits any more; a sandbox that came in the same moment is still unused."""
        with contextlib.suppress(ValueError):
            shelf.waiters.remove(waiter)
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            if self._is_open:
                shelf.put(waiter.result(), self._now())
            else:
                self._disposal.discard(waiter.result())
        waiter.cancel()
        if self._is_open:
            self._orders.count()

    def _too_late(self, shelf: Shelf, timeout_s: float) -> StartTimeout:
        fault = f"; the last start failed: {shelf.fault}".split("\n")[0] if shelf.fault else ""
        return StartTimeout(
            f"no sandbox within {timeout_s:g} s: {shelf.waiting} more waiting, "
            f"{len(shelf.orders)} starting{fault}",
            fix="see `training-gym sandbox size` for what these episodes need, or wait longer",
        )

    async def _replace(self, spec: SandboxSpec) -> Lease:
        self._meter.replacements += 1
        return await self.acquire(spec)

    def _release(self, started: Started) -> None:
        if started in self._in_use:  # else the pool was closed before its lease
            self._in_use.discard(started)
            self._orders.discard(started)
            if self._is_open:
                self._orders.count()

    def _check_open(self) -> None:
        if not self._is_open:
            raise _closed()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _closed() -> SandboxError:
    return SandboxError("the pool is closed", fix="open it with `async with SandboxPool(…)`")
