"""The fake keeps the clauses that need no commands, and fails exactly when it is told to."""

from __future__ import annotations

import asyncio

import pytest

from training_gym.spec.sandboxes import (
    QuotaExceeded,
    RateLimited,
    SandboxDied,
    SandboxSpec,
    StartTimeout,
)
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.sandbox_contract import FILES, raises, shell, try_clause


@pytest.mark.parametrize("clause", FILES, ids=lambda clause: clause.__name__)
def test_contract(clause) -> None:
    try_clause(clause, FakeProvider)


def test_quota_counts_those_being_started() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        provider = FakeProvider(max_concurrent=2, sleep=lambda _: gate.wait())
        starting = [asyncio.create_task(provider.create(SandboxSpec())) for _ in range(2)]
        await asyncio.sleep(0)
        assert provider.starting == 2
        await raises(QuotaExceeded, provider.create(SandboxSpec()))
        gate.set()
        first, _ = await asyncio.gather(*starting)
        await raises(QuotaExceeded, provider.create(SandboxSpec()))
        await first.destroy()
        await provider.create(SandboxSpec())
        assert (provider.starting, provider.created, len(provider.alive)) == (0, 3, 2)

    asyncio.run(run())


def test_rate_limit_says_when_to_come_back() -> None:
    async def run() -> None:
        now = [10.0]
        provider = FakeProvider(creates_per_s=1, clock=lambda: now[0])
        await provider.create(SandboxSpec())
        now[0] = 10.25
        error = await raises(RateLimited, provider.create(SandboxSpec()))
        assert isinstance(error, RateLimited)
        assert error.retry_after_s == pytest.approx(0.75)
        now[0] += error.retry_after_s
        await provider.create(SandboxSpec())

    asyncio.run(run())


def test_failures_come_in_the_order_given() -> None:
    async def run() -> None:
        provider = FakeProvider(
            failures=[SandboxDied("lost", fix="again"), None], start_s=iter([0, 9, 0]).__next__
        )
        await raises(SandboxDied, provider.create(SandboxSpec()))
        await raises(StartTimeout, provider.create(SandboxSpec(), timeout_s=0.01))
        sandbox = await provider.create(SandboxSpec())
        sandbox.die()
        await raises(SandboxDied, sandbox.exec(shell("true")))

    asyncio.run(run())
