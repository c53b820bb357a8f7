"""One reading of a pool's metrics, from the parts that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from training_gym.sandboxes.pool.metrics import Meter, PoolMetrics

if TYPE_CHECKING:
    from training_gym.sandboxes.pool.shelf import Shelf
    from training_gym.sandboxes.pool.starts import Starter
    from training_gym.sandboxes.pool.upkeep import Upkeep


def read(
    now: float,
    meter: Meter,
    starter: Starter,
    upkeep: Upkeep,
    shelves: Sequence[Shelf],
    *,
    in_use: int,
    undestroyed: int,
    create_limit_per_s: float | None,
) -> PoolMetrics:
    """All of it, as it is now."""
    meter.advance(now)
    needed = sum(shelf.rate_per_s(now) for shelf in shelves)
    return PoolMetrics(
        acquires=meter.acquires,
        misses=meter.misses,
        replacements=meter.replacements,
        wait_s=meter.wait_s,
        wait_p50_s=meter.wait_quantile(0.5),
        wait_p99_s=meter.wait_quantile(0.99),
        in_use=in_use,
        ready=sum(len(shelf.ready) for shelf in shelves),
        starting=sum(len(shelf.orders) for shelf in shelves),
        waiting=sum(shelf.waiting for shelf in shelves),
        outstanding_predicted=sum(shelf.outstanding(now) for shelf in shelves),
        outstanding_mean=meter.starting_s / meter.uptime_s if meter.uptime_s else 0.0,
        target=sum(shelf.target(now) for shelf in shelves),
        created=starter.created,
        failed_starts=starter.failed,
        hedged_starts=starter.hedged,
        expired=upkeep.expired,
        dead_spares=upkeep.dead,
        reaped=upkeep.reaped,
        undestroyed=undestroyed,
        breaker_opened=starter.breaker.times_opened,
        breaker_open=starter.breaker.is_open,
        sustainable=create_limit_per_s is None or needed < create_limit_per_s,
        creates_needed_per_s=needed,
        idle_sandbox_s=meter.idle_sandbox_s,
        blocked_s=meter.blocked_s,
        uptime_s=meter.uptime_s,
    )
