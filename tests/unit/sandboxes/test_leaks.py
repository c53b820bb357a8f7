"""Nothing is left behind: not by an orderly end, not by SIGKILL at any moment."""

from __future__ import annotations

import asyncio
import os

import pytest

from training_gym.spec.sandboxes import ExecRequest, SandboxSpec
from training_gym.testing.sandbox_leaks import kill_at_random, traces
from training_gym.testing.sandbox_tiers import NOBODY, ZYGOTES

UIDS = {"A": None, "B": NOBODY if os.geteuid() == 0 else None}


@pytest.mark.parametrize("tier", ZYGOTES)
def test_an_orderly_end_leaves_nothing(tier, reachable_home) -> None:
    async def body() -> None:
        provider = ZYGOTES[tier]()
        for _ in range(10):
            sandbox = await provider.create(SandboxSpec())
            await sandbox.exec(ExecRequest(argv=("sh", "-c", "sleep 60 & true")))
            for child in await sandbox.fork(1):
                await child.destroy()
            await sandbox.destroy()
        assert not traces(reachable_home).none, "a provider at work can be seen"
        await provider.close()

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(body())
    assert traces(reachable_home).none
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tier", ZYGOTES)
def test_a_killed_owner_leaves_nothing(tier, seed, reachable_home) -> None:
    left = kill_at_random(reachable_home, uid=UIDS[tier], seed=seed)
    assert left.none, left


@pytest.mark.slow
@pytest.mark.parametrize("tier", ZYGOTES)
def test_fifty_killed_owners_leave_nothing(tier, reachable_home) -> None:
    for seed in range(100, 150):
        left = kill_at_random(reachable_home, uid=UIDS[tier], seed=seed)
        assert left.none, (seed, left)
