"""How many sandboxes to hold ready, from rates and times alone: pure formulas, seconds throughout.

The chain of thought. `C` episodes in flight that each hold a sandbox for `T` seconds acquire
`λ = C/T` a second (Little's law). A spare that is taken is ordered anew at once, and an order takes
the lead time `L` to arrive. The orders outstanding are the customers of a queue with as many
servers as it likes, so their number is Poisson with mean `m = λ(1+f)L` whatever the distribution of
start times looks like (Palm's theorem). An acquire waits exactly if all `b` spares are on order,
and since arrivals see the time average (PASTA) that happens with probability P(Poisson(m) ≥ b).
The buffer is the smallest `b` for which that is at most the blocking one tolerates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

from training_gym.spec.errors import SpecError

Distribution = Callable[[float], float]
"""Cumulative distribution of a time in seconds."""


def acquires_per_s(episodes: float, hold_s: float) -> float:
    """Sandboxes acquired a second by so many episodes in flight: Little's law."""
    return episodes / hold_s


def lead_time_s(
    start_s: float, *, failure: float = 0.0, failure_s: float | None = None, refill_s: float = 0.0
) -> float:
    """Mean seconds from ordering a sandbox to having it, failed tries included.

    `E[start] + q/(1-q)·E[time to notice a failure] + refill period`: the number of failures before
    the first success is geometric. `failure_s` defaults to `start_s`.
    """
    noticed = start_s if failure_s is None else failure_s
    return start_s + failure / (1.0 - failure) * noticed + refill_s


def outstanding_starts(rate_per_s: float, lead_s: float, *, death: float = 0.0) -> float:
    """Mean orders under way, `λ(1+f)L`: Little's law; each dead sandbox (share `f`) needs another.

    It stands to first order in `f`; a replacement that dies as well is left out.
    """
    return rate_per_s * (1.0 + death) * lead_s


def poisson_tail(count: int, mean: float) -> float:
    """P(Poisson(mean) ≥ count), by summing the shorter side from its largest term outwards."""
    if count <= 0:
        return 1.0
    if mean <= 0.0:
        return 0.0
    if count > mean:
        return _poisson_sum(count, mean, upwards=True)
    return 1.0 - _poisson_sum(count - 1, mean, upwards=False)


def _poisson_sum(count: int, mean: float, *, upwards: bool) -> float:
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    total = 0.0
    while term > total * 1e-17 and term > 0.0:
        total += term
        if upwards:
            count += 1
            term *= mean / count
        else:
            term *= count / mean
            count -= 1
    return total


def spares(outstanding: float, blocking: float) -> int:
    """Smallest buffer at which an acquire waits with at most probability `blocking`.

    Close to `m + z·√m` for large means; this is the exact Poisson quantile.
    """
    low, high = 0, 1
    while poisson_tail(high, outstanding) > blocking:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if poisson_tail(middle, outstanding) > blocking:
            low = middle
        else:
            high = middle
    return high


_GRID = math.log(1.01)


@lru_cache(maxsize=4096)
def _spares_on_grid(step: int, blocking: float) -> int:
    return spares(math.exp(step * _GRID), blocking)


def quick_spares(outstanding: float, blocking: float) -> int:
    """`spares` of the mean rounded up by at most 1 %: never fewer, and remembered.

    For a pool that asks again at every event.
    """
    if outstanding <= 1e-6:
        return 1
    return _spares_on_grid(math.ceil(math.log(outstanding) / _GRID), blocking)


def idle_spares(outstanding: float, buffer: int) -> float:
    """Mean spares that stand ready, `E[(b - N)⁺]` with N Poisson."""
    # E[(b-N)+] = b·P(N<b) - m·P(N<b-1), since n·P(N=n) = m·P(N=n-1).
    below = 1.0 - poisson_tail(buffer, outstanding)
    return buffer * below - outstanding * (1.0 - poisson_tail(buffer - 1, outstanding))


def creates_needed_per_s(rate_per_s: float, *, failure: float = 0.0, death: float = 0.0) -> float:
    """Creations a second that must be exceeded: `λ(1+f)/(1-q)`.

    At or below it the orders under way grow without end and no buffer suffices.
    """
    return rate_per_s * (1.0 + death) / (1.0 - failure)


def erlang_cdf(shape: int, mean_s: float) -> Distribution:
    """A time that is the sum of `shape` exponential ones: the sharper, the larger `shape`."""

    def cumulative(t: float) -> float:
        return poisson_tail(shape, t * shape / mean_s) if t > 0.0 else 0.0

    return cumulative


def burst_spares(
    rollouts: int,
    first_action: Distribution,
    *,
    create_per_s: float,
    start_s: float,
    horizon_s: float,
    failure: float = 0.0,
    death: float = 0.0,
    blocking: float = 0.01,
    points: int = 4000,
) -> int:
    """Spares that must stand ready when `rollouts` all begin to generate at once.

    Generation hides starts: a sandbox is first needed when its rollout first acts, so up to time t
    the demand is binomial with mean `R·F(t)` while creation has delivered `c(1-q)(t - start)⁺`. The
    buffer is the largest shortfall over t, `R(1+f)F + z√(R·F(1-F)) - c(1-q)(t-start)⁺`.
    `horizon_s` is a time by which (almost) every rollout has acted.
    """
    z = NormalDist().inv_cdf(1.0 - blocking)
    worst = 0.0
    for point in range(points + 1):
        t = horizon_s * point / points
        share = min(1.0, first_action(t))
        demand = rollouts * (1.0 + death) * share + z * math.sqrt(rollouts * share * (1.0 - share))
        worst = max(worst, demand - create_per_s * (1.0 - failure) * max(0.0, t - start_s))
    return math.ceil(worst)


def erlang_b(servers: int, load: float) -> float:
    """Share of arrivals that find all servers busy, nobody queueing (Erlang's loss formula).

    `load` is arrivals a second times mean service seconds. Like Palm's theorem it holds whatever
    the distribution of service times.
    """
    inverse = 1.0
    for server in range(1, servers + 1):
        inverse = 1.0 + inverse * server / load
        if inverse > 1e300:
            return 0.0
    return 1.0 / inverse


def graders(calls_per_s: float, call_s: float, blocking: float) -> int:
    """Fewest stateless sandboxes at which a call finds none free with at most `blocking`."""
    load = calls_per_s * call_s
    count, inverse = 0, 1.0
    while inverse * blocking < 1.0:
        count += 1
        inverse = 1.0 + inverse * count / load
    return count


def cost_optimal_blocking(idle_per_s: float, blocked_per_s: float) -> float:
    """The blocking at which one more spare costs what it saves, `s/g`, of two prices.

    `idle_per_s`: what a spare costs a second; `blocked_per_s`: what a second costs in which one
    rollout waits for a sandbox (its share of the accelerator). One more spare costs `s` and spares
    `g` in the share of time in which all are on order: the newsvendor's balance.
    """
    if idle_per_s <= 0.0 or blocked_per_s <= idle_per_s:
        raise SpecError(
            f"a spare at {idle_per_s:g} a second against waiting at {blocked_per_s:g} a second "
            "gives no blocking between 0 and 1",
            fix="give both prices in one currency; waiting must cost more than a spare",
        )
    return idle_per_s / blocked_per_s
