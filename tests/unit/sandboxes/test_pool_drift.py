"""Blocking against its target while load and start times move, in simulated time."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from training_gym.sandboxes.pool import PoolPolicy, SandboxPool
from training_gym.spec.sandboxes import SandboxDied, SandboxSpec
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.simulated_time import run_simulated

SPEC = SandboxSpec()


def load_per_s(t: float) -> float:
    """Between 4 and 28 a second and back, in 400 s."""
    return 16.0 - 12.0 * math.cos(2 * math.pi * t / 400.0)


def start_mean_s(t: float) -> float:
    """Doubles over 40 s, at the steepest rise of the load."""
    return 1.0 + min(1.0, max(0.0, (t - 80.0) / 40.0))


@pytest.mark.parametrize(
    ("blocking", "failing", "limit_per_s", "lasts_s"),
    [(0.01, 0.0, None, 400.0), (0.05, 0.05, 60.0, 200.0)],
)
def test_blocking_stays_within_its_target_under_drift(
    tmp_path, blocking, failing, limit_per_s, lasts_s
):
    draw = random.Random(4)

    def start_s() -> float:
        now = asyncio.get_running_loop().time()
        return start_mean_s(now) * draw.lognormvariate(-0.125, 0.5)

    def failures():
        while True:
            yield SandboxDied("gone", fix="again") if draw.random() < failing else None

    async def main():
        clock = asyncio.get_running_loop().time
        provider = FakeProvider(
            start_s=start_s, failures=failures(), creates_per_s=limit_per_s, clock=clock
        )
        policy = PoolPolicy(blocking=blocking)
        async with SandboxPool(provider, policy, folder=tmp_path / "l") as pool:
            await pool.warm(SPEC, 12)
            await pool.warm(SPEC, 0)

            async def episode() -> None:
                async with await pool.acquire(SPEC):
                    await asyncio.sleep(1.0)

            async with asyncio.TaskGroup() as episodes:
                while clock() < lasts_s:
                    await asyncio.sleep(draw.expovariate(load_per_s(clock())))
                    episodes.create_task(episode())
            metrics = pool.metrics()
        assert not provider.alive
        return metrics

    metrics = run_simulated(main())
    assert metrics.acquires > 2500
    assert metrics.blocking <= 1.3 * blocking
    mean_idle = metrics.idle_sandbox_s / metrics.uptime_s
    assert mean_idle < metrics.outstanding_mean, "and not by hoarding"
