"""The stock of one kind of sandbox: spares, orders, those who wait, and how many there should be.

The invariant: spares + orders - waiters is steered to the target, the base stock. An acquire
lowers it by one and therefore orders one; nothing else is needed to refill.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from training_gym.sandboxes.pool.disposal import Started
from training_gym.sandboxes.pool.estimates import ArrivalRate, Durations
from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.sandboxes.sizing import quick_spares
from training_gym.spec.sandboxes import SandboxSpec

Waiter = asyncio.Future[Started]
_FAST = 6.0  # the quick counter forgets so many times faster
_LEAST_LEAD_S = 0.001


@dataclass(eq=False)
class Spare:
    """A sandbox nobody has used."""

    started: Started
    made_at: float
    heard_at: float
    """When it last showed that it lives."""
    probing: bool = False


class Shelf:
    """One kind."""

    def __init__(self, spec: SandboxSpec, policy: PoolPolicy, now: float) -> None:
        """Empty."""
        self.spec = spec
        self._policy = policy
        self._slow = ArrivalRate(policy.rate_window_s, now=now)
        self._quick = ArrivalRate(policy.rate_window_s / _FAST, now=now)
        self._last_acquire = now
        self.starts = Durations()
        """Seconds that creations took."""
        self.leads = Durations()
        """Seconds from order to delivery: creations with all that held them up."""
        self.ready: deque[Spare] = deque()
        self.orders: dict[asyncio.Task[None], float] = {}
        """Under way, with the time each was placed, oldest first."""
        self._placed_sum = 0.0
        self.waiters: deque[Waiter] = deque()
        self.floor = 0
        """Spares asked for by `warm`."""
        self.fault: Exception | None = None
        """The last order's error; None after a success."""
        self.broken = False
        """Whether the fault is the kind's own: then nothing is made ahead of need."""

    def record_acquire(self, now: float) -> None:
        """One more was asked for."""
        self._last_acquire = now
        self._slow.record(now)
        self._quick.record(now)

    def rate_per_s(self, now: float) -> float:
        """Acquires a second, on the safe side.

        The slow counter with its uncertainty added, or the quick one if that is higher: a rise
        shows within seconds, while a lull does not sell the stock.
        """
        return max(self._slow.upper_per_s(now), self._quick.per_s(now))

    def lead_s(self, now: float) -> float:
        """Seconds an order takes: the smoothed mean, or longer if those under way are older."""
        mean_s = self.leads.mean_s or 0.0
        # If starts take L, orders under way are L/2 old on average, whatever their number; their
        # ages are even between 0 and L, so twice the mean has a standard error of L/√(3n).
        count = len(self.orders)
        current_s = 0.0
        if count >= 4:
            mean_age_s = now - self._placed_sum / count
            current_s = 2.0 * mean_age_s * (1.0 - 1.0 / math.sqrt(3.0 * count))
        if not self.leads.count:
            current_s = now - next(iter(self.orders.values()), now)
        return max(mean_s, min(current_s, 4.0 * mean_s or current_s), _LEAST_LEAD_S)

    def outstanding(self, now: float) -> float:
        """Orders the formula expects to be under way."""
        return self.rate_per_s(now) * self.lead_s(now)

    def target(self, now: float) -> int:
        """Spares wanted, ready and on order together."""
        if self.broken:
            return 0
        wanted = self.floor
        if now - self._last_acquire < self._policy.forget_after_s and self._slow.per_s(now) > 0.0:
            spares = quick_spares(self.outstanding(now), self._policy.blocking)
            wanted = max(wanted, self._policy.min_spares, spares)
        return min(wanted, self._policy.max_spares)

    def lacking(self, now: float) -> int:
        """Orders to place now."""
        return self.target(now) + self.waiting - len(self.ready) - len(self.orders)

    def surplus(self, now: float) -> int:
        """Spares that will not be used up soon by themselves."""
        used_soon = self.rate_per_s(now) * self._policy.rate_window_s / _FAST
        stock = len(self.ready) + len(self.orders) - self.waiting
        target = self.target(now)
        return min(len(self.ready), round(stock - target - max(target / 4.0, used_soon)))

    def placed(self, order: asyncio.Task[None], now: float) -> None:
        """An order is under way."""
        self.orders[order] = now
        self._placed_sum += now

    def ended(self, order: asyncio.Task[None]) -> None:
        """An order has come or failed."""
        self._placed_sum -= self.orders.pop(order)

    @property
    def waiting(self) -> int:
        """Acquires that wait."""
        return len(self.waiters)

    def put(self, started: Started, now: float) -> None:
        """To whoever has waited longest, else onto the shelf."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(started)
                return
        self.ready.append(Spare(started, made_at=now, heard_at=now))

    def take_fresh(self, now: float) -> Spare | None:
        """The oldest spare known to live."""
        for spare in self.ready:
            if not spare.probing and now - spare.heard_at <= self._policy.stale_after_s:
                self.ready.remove(spare)
                return spare
        return None

    def take_any(self) -> Spare | None:
        """The oldest spare that nobody is probing."""
        for spare in self.ready:
            if not spare.probing:
                self.ready.remove(spare)
                return spare
        return None
