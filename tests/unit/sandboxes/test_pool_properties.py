"""Whatever happens to a pool: nothing twice, nothing left, no permit lost."""

from __future__ import annotations

import asyncio
import contextlib
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from training_gym.sandboxes.pool import PoolPolicy, SandboxPool
from training_gym.spec.sandboxes import (
    QuotaExceeded,
    RateLimited,
    Resources,
    SandboxDied,
    SandboxError,
    SandboxSpec,
    StartFailed,
)
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.simulated_time import run_simulated

SPECS = [SandboxSpec(), SandboxSpec(resources=Resources(memory_mb=1024))]
ERRORS = {
    "died": SandboxDied("gone", fix="again"),
    "rate": RateLimited("slower", fix="wait", retry_after_s=0.5),
    "quota": QuotaExceeded("full", fix="wait"),
    "image": StartFailed("no image", fix="build it"),
}
PROBE = ("true",)
"""What the pool itself asks a spare that has lain too long: whether it lives."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "close", "cancel", "die", "replace", "sleep", "warm"]),
        st.integers(0, 7),
    ),
    max_size=40,
)


class Story:
    """Plays steps against a pool and keeps what was handed out."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool
        self.handed_out: list[str] = []
        self.leases: list = []
        self.waiting: list[asyncio.Task] = []

    async def acquire(self, spec: SandboxSpec) -> None:
        with contextlib.suppress(SandboxError):
            self.keep(await self.pool.acquire(spec, timeout_s=20))

    def keep(self, lease) -> None:
        asked = {request.argv for request in lease.sandbox.requests}
        assert asked <= {PROBE}, "nobody has used it"
        self.handed_out.append(lease.sandbox.id)
        self.leases.append(lease)

    async def play(self, step: str, number: int) -> None:
        if step == "acquire":
            task = asyncio.create_task(self.acquire(SPECS[number % 2]))
            self.waiting.append(task)
        elif step == "close" and self.leases:
            self.leases.pop(number % len(self.leases)).close()
        elif step == "cancel" and self.waiting:
            self.waiting.pop(number % len(self.waiting)).cancel()
        elif step == "die" and self.pool.provider.alive:
            alive = list(self.pool.provider.alive.values())
            alive[number % len(alive)].die()
        elif step == "replace" and self.leases:
            lease = self.leases.pop(number % len(self.leases))
            with contextlib.suppress(SandboxError):
                self.keep(await lease.replace())
        elif step == "warm":
            self.pool.shelves and setattr(self.pool.shelves[0], "floor", number)
        await asyncio.sleep((0.0, 0.1, 1.0, 7.0)[number % 4])


@settings(max_examples=settings.default.max_examples // 2)
@given(
    steps=STEPS,
    failures=st.lists(st.sampled_from([None, None, *ERRORS]), max_size=25),
    seed=st.integers(0, 1000),
    max_concurrent=st.sampled_from([None, 3, 8]),
    max_starting=st.sampled_from([None, 1, 3]),
)
@example(  # what is handed over has become stale, and was asked whether it lives
    steps=[("acquire", 3), ("replace", 0)],
    failures=[],
    seed=0,
    max_concurrent=None,
    max_starting=None,
)
def test_invariants(tmp_path_factory, steps, failures, seed, max_concurrent, max_starting):
    folder = tmp_path_factory.mktemp("pool")
    draw = random.Random(seed)
    most_starting = 0

    def start_s() -> float:
        nonlocal most_starting
        most_starting = max(most_starting, provider.starting)
        return draw.choice((0.0, 0.1, 0.1, 3.0))

    provider = FakeProvider(
        start_s=start_s,
        failures=[ERRORS.get(name) for name in failures],
        max_concurrent=max_concurrent,
    )
    policy = PoolPolicy(
        max_starting=max_starting, stale_after_s=4.0, spare_ttl_s=20.0, forget_after_s=15.0
    )

    async def main() -> None:
        async with SandboxPool(provider, policy, folder=folder / "l") as pool:
            story = Story(pool)
            for step, number in steps:
                await story.play(step, number)
                if max_concurrent is not None:
                    assert len(provider.alive) + provider.starting <= max_concurrent
            open_leases = set(pool._journal.open.values()) - {None}
            assert set(provider.alive) <= open_leases, "all that lives is written down"
            for task in story.waiting:
                task.cancel()
            await asyncio.gather(*story.waiting, return_exceptions=True)
            starting = pool._starter._limits.starting
        assert starting is None or starting.held == 0, "permits are conserved"
        assert len(story.handed_out) == len(set(story.handed_out)), "never handed out twice"

    run_simulated(main())
    assert not provider.alive
    assert provider.starting == 0
    assert most_starting <= (max_starting or 10_000)
    assert not list(folder.rglob("*.jsonl"))
    assert not list(folder.rglob("*.lock"))
