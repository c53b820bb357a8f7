"""What the pool learns while it runs: how fast sandboxes are acquired and how long they take.

Nothing here looks at a clock; times are passed in, in seconds.
"""

from __future__ import annotations

import bisect
import math
from collections import deque


class ArrivalRate:
    """Acquires a second, from an exponentially forgetting counter, with its own uncertainty."""

    def __init__(self, window_s: float, *, now: float) -> None:
        """`window_s`: time constant of forgetting."""
        self._window_s = window_s
        self._since = now
        self._last = now
        self._count = 0.0

    def record(self, now: float) -> None:
        """One more acquire."""
        self._forget(now)
        self._count += 1.0

    def _forget(self, now: float) -> None:
        self._count *= math.exp(-max(0.0, now - self._last) / self._window_s)
        self._last = max(self._last, now)

    def per_s(self, now: float) -> float:
        """The estimate; a young counter is divided by the part of its window it has seen."""
        return self._weight(now) / self._exposure_s(now)

    def upper_per_s(self, now: float) -> float:
        """The estimate plus its standard deviation.

        For Poisson arrivals the forgetting counter has half the variance of its mean.
        """
        weight = self._weight(now)
        return (weight + math.sqrt(weight / 2.0)) / self._exposure_s(now)

    def _weight(self, now: float) -> float:
        return self._count * math.exp(-max(0.0, now - self._last) / self._window_s)

    def _exposure_s(self, now: float) -> float:
        # The first arrival starts the clock, so at least a thirtieth of a window has been seen.
        seen = max(now - self._since, self._window_s / 30.0)
        return self._window_s * -math.expm1(-seen / self._window_s)


class Durations:
    """Mean by exponential smoothing and quantiles over the latest durations."""

    def __init__(self, *, smoothing: float = 0.05, keep: int = 200) -> None:
        """`smoothing`: weight of the newest in the mean; `keep`: how many the quantiles see."""
        self._smoothing = smoothing
        self._latest: deque[float] = deque(maxlen=keep)
        self._sorted: list[float] = []
        self._mean = 0.0
        self.count = 0

    def record(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        # Until there are enough for the smoothing, the plain mean of all.
        self._mean += max(self._smoothing, 1.0 / self.count) * (seconds - self._mean)
        if len(self._latest) == self._latest.maxlen:
            del self._sorted[bisect.bisect_left(self._sorted, self._latest[0])]
        self._latest.append(seconds)
        bisect.insort(self._sorted, seconds)

    @property
    def mean_s(self) -> float | None:
        """Smoothed mean; None before the first."""
        return self._mean if self.count else None

    def quantile(self, share: float, *, at_least: int = 1) -> float | None:
        """The duration that this share of the latest does not exceed; None with fewer seen."""
        if len(self._sorted) < at_least:
            return None
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]
