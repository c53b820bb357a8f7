"""What a pool measures about itself, kept up to date at every change of its counts."""

from __future__ import annotations

from collections import deque

from training_gym.spec.settings import Settings


class PoolMetrics(Settings):
    """One reading of a pool; counters and integrals run from its start."""

    acquires: int
    """Sandboxes handed out."""
    misses: int
    """Acquires that found no spare ready."""
    replacements: int
    """Acquires that replaced a sandbox that had died in use."""
    wait_s: float
    """Seconds that acquires waited, summed."""
    wait_p50_s: float | None
    """Median wait of the latest thousand acquires."""
    wait_p99_s: float | None
    in_use: int
    ready: int
    starting: int
    """Orders under way now: the actual outstanding starts."""
    waiting: int
    outstanding_predicted: float
    """What the formula expects to be under way now, λL, summed over the kinds."""
    outstanding_mean: float
    """Orders under way, averaged over the pool's life."""
    target: int
    """Spares wanted now, ready and starting together."""
    created: int
    failed_starts: int
    hedged_starts: int
    expired: int
    """Spares destroyed for age or because fewer were wanted."""
    dead_spares: int
    """Spares found dead."""
    reaped: int
    """Sandboxes of dead owners destroyed."""
    undestroyed: int
    """Sandboxes whose destruction is still being tried."""
    breaker_opened: int
    breaker_open: bool
    sustainable: bool
    """Whether the create limit keeps up with the acquires; if not, no buffer suffices."""
    creates_needed_per_s: float
    idle_sandbox_s: float
    """Seconds that spares stood ready, summed: what the buffer cost."""
    blocked_s: float
    """Seconds the accelerator was blocked by sandboxes: those in which some acquire waited while
    the accelerator was idle, as told by `SandboxPool.accelerator`; untold, seconds weighted by the
    share of episodes that waited."""
    uptime_s: float

    @property
    def blocking(self) -> float:
        """Share of acquires that waited."""
        return self.misses / self.acquires if self.acquires else 0.0


class Meter:
    """Integrates counts over time and keeps the latest waits."""

    def __init__(self, now: float) -> None:
        """Begin at `now`."""
        self._begin = now
        self._last = now
        self._ready = self._starting = self._waiting = self._in_use = 0
        self._busy: bool | None = None
        self._waits: deque[float] = deque(maxlen=1000)
        self.acquires = self.misses = self.replacements = 0
        self.wait_s = 0.0
        self.idle_sandbox_s = 0.0
        self.starting_s = 0.0
        self.blocked_s = 0.0

    def set(self, now: float, *, ready: int, starting: int, waiting: int, in_use: int) -> None:
        """The counts from now on."""
        self.advance(now)
        self._ready, self._starting = ready, starting
        self._waiting, self._in_use = waiting, in_use

    def accelerator(self, now: float, busy: bool) -> None:
        """Whether it has work from now on."""
        self.advance(now)
        self._busy = busy

    def advance(self, now: float) -> None:
        """Integrate up to now."""
        passed = now - self._last
        self._last = now
        self.idle_sandbox_s += passed * self._ready
        self.starting_s += passed * self._starting
        if self._waiting and self._busy is None:
            self.blocked_s += passed * self._waiting / (self._waiting + self._in_use)
        elif self._waiting and not self._busy:
            self.blocked_s += passed

    def acquired(self, wait_s: float, *, missed: bool) -> None:
        """One sandbox was handed out."""
        self.acquires += 1
        self.misses += missed
        self.wait_s += wait_s
        self._waits.append(wait_s)

    def wait_quantile(self, share: float) -> float | None:
        """Of the latest waits."""
        ordered = sorted(self._waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None

    @property
    def uptime_s(self) -> float:
        """Seconds since the beginning."""
        return self._last - self._begin
