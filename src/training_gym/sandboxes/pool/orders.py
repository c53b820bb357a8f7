"""The orders of a pool: what its shelves lack, as far as there is room, until it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Set

from training_gym.sandboxes.pool.disposal import Disposal, Started
from training_gym.sandboxes.pool.kinds import Kinds
from training_gym.sandboxes.pool.metrics import Meter
from training_gym.sandboxes.pool.shelf import Shelf
from training_gym.sandboxes.pool.starts import Starter
from training_gym.spec.sandboxes import SandboxSpec, disposition


class Orders:
    """Places orders and carries them out, from the pool's opening to its close."""

    def __init__(
        self,
        kinds: Kinds,
        starter: Starter,
        disposal: Disposal,
        meter: Meter,
        *,
        in_use: Set[Started],
        max_live: int | None,
    ) -> None:
        """None are placed yet.

        Args:
            kinds: The shelves to fill.
            starter: Carries out one order.
            disposal: Where sandboxes end; until they have, they take up room.
            meter: What is told of the counts.
            in_use: Sandboxes on loan: the pool's own set, which changes.
            max_live: Never more sandboxes in all; None: no limit.
        """
        self._kinds = kinds
        self._starter = starter
        self._disposal = disposal
        self._meter = meter
        self._in_use = in_use
        self._max_live = max_live
        self._is_open = True

    def stop(self) -> None:
        """Place no more."""
        self._is_open = False

    def restock(self, shelf: Shelf) -> None:
        """Order what the kind lacks, as far as there is room."""
        if not self._is_open:
            return
        now = _now()
        lacking = shelf.lacking(now)
        room = self._room()
        if room is not None and lacking > room:
            if shelf.waiting > len(shelf.orders) + room:
                self.make_room(shelf.spec)
            lacking = room
        for _ in range(lacking):
            order = asyncio.create_task(self._fill(shelf))
            shelf.placed(order, now)
            order.add_done_callback(lambda done: self._ended(shelf, done))
        self.count()

    def make_room(self, spec: SandboxSpec) -> None:
        """Give up a spare of another kind: of the one that has most."""
        shelves = self._kinds.shelves
        others = [shelf for shelf in shelves if shelf.spec != spec and shelf.ready]
        if others:
            richest = max(others, key=lambda shelf: len(shelf.ready))
            spare = richest.take_any()
            if spare is not None:
                self.discard(spare.started)

    def discard(self, started: Started) -> None:
        """Destroy a sandbox; when it is gone there is room for another."""
        gone = self._disposal.discard(started)
        gone.add_done_callback(lambda _: self._has_room())

    def count(self) -> None:
        """Let the meter know of the present counts."""
        shelves = self._kinds.shelves
        self._meter.set(
            _now(),
            ready=sum(len(shelf.ready) for shelf in shelves),
            starting=sum(len(shelf.orders) for shelf in shelves),
            waiting=sum(shelf.waiting for shelf in shelves),
            in_use=len(self._in_use),
        )

    def _room(self) -> int | None:
        limit = self._max_live
        if limit is None:
            return None
        held = sum(len(shelf.ready) + len(shelf.orders) for shelf in self._kinds.shelves)
        return max(0, limit - held - len(self._in_use) - len(self._disposal))

    def _has_room(self) -> None:
        if self._is_open and self._max_live is not None:
            for shelf in sorted(self._kinds.shelves, key=lambda each: -each.waiting):
                self.restock(shelf)

    async def _fill(self, shelf: Shelf) -> None:
        """Carry out one order."""
        placed = _now()
        try:
            started = await self._starter.start(shelf.spec, shelf.starts)
        except Exception as error:  # noqa: BLE001 - the boundary to the provider; waiters get it
            self._failed(shelf, error)
            return
        now = _now()
        shelf.leads.record(now - placed)
        shelf.fault, shelf.broken = None, False
        shelf.put(started, now)

    def _failed(self, shelf: Shelf, error: Exception) -> None:
        shelf.fault = error
        shelf.broken = disposition(error).retry == "never"
        told = len(shelf.waiters) if shelf.broken else 1
        for _ in range(min(told, len(shelf.waiters))):
            waiter = shelf.waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def _ended(self, shelf: Shelf, order: asyncio.Task[None]) -> None:
        shelf.ended(order)
        self.restock(shelf)


def _now() -> float:
    return asyncio.get_running_loop().time()
