"""The pool with real local sandboxes: nobody's leftovers, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training_gym.sandboxes.pool import PoolPolicy, SandboxPool
from training_gym.sandboxes.zygote.inside.__main__ import Zygote
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import ExecRequest, SandboxSpec

SPEC = SandboxSpec()
MARK = ExecRequest(argv=("sh", "-c", "ls; echo used > mark"))


def test_each_is_unused_and_all_are_gone_afterwards(tmp_path):
    async def main():
        provider = ZygoteProvider()
        async with SandboxPool(provider, PoolPolicy(max_starting=2), folder=tmp_path) as pool:
            await pool.warm(SPEC, 3)

            async def episode():
                async with await pool.acquire(SPEC) as lease:
                    return lease.sandbox.id, (await lease.sandbox.exec(MARK)).text

            seen = [await episode() for _ in range(6)]
            seen += await asyncio.gather(*(episode() for _ in range(6)))
            assert len({name for name, _ in seen}) == 12
            assert {found for _, found in seen} == {""}
        assert not await provider.list()
        assert not list(tmp_path.rglob("*.jsonl"))
        await provider.close()

    asyncio.run(main())


def test_spares_that_died_are_not_handed_out(tmp_path):
    async def main():
        provider = ZygoteProvider()
        policy = PoolPolicy(stale_after_s=0.2, check_every_s=0.1)
        async with SandboxPool(provider, policy, folder=tmp_path) as pool:
            await pool.warm(SPEC, 2)
            for info in await provider.list():
                await provider.destroy(info.id)
            await asyncio.sleep(0.5)
            async with await pool.acquire(SPEC) as lease:
                assert (await lease.sandbox.exec(MARK)).ok
            assert pool.metrics().dead_spares == 2
        await provider.close()

    asyncio.run(main())


def test_a_refusal_that_nobody_reads_does_not_end_the_zygote():
    """A creation given up while the machine is busy must not take the other sandboxes along."""
    asker, link = socket.socketpair()
    asker.close()
    with link:
        Zygote._refuse(link.fileno(), "too late")


CROWDED = """
import asyncio, os
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import SandboxSpec

async def main():
    while (last := os.open("/dev/null", os.O_RDONLY)) < 22:
        if last >= 16:
            provider = ZygoteProvider()
            await (await provider.create(SandboxSpec())).destroy()
            await provider.close()
    print("made", end="")

asyncio.run(main())
"""


def test_it_starts_whatever_descriptors_are_taken():
    ran = subprocess.run(
        [sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "made", ran.stderr


OWNER = """
import asyncio, sys
from pathlib import Path
from training_gym.sandboxes.pool import PoolPolicy, SandboxPool
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import ExecRequest, SandboxSpec

async def main():
    async with SandboxPool(ZygoteProvider(), folder=Path(sys.argv[1])) as pool:
        await pool.warm(SandboxSpec(), 3)
        print("warm", flush=True)
        while True:
            async with await pool.acquire(SandboxSpec()) as lease:
                await lease.sandbox.exec(ExecRequest(argv=("sleep", "1009"), timeout_s=0.05))

asyncio.run(main())
"""


def descendants(root: int) -> set[int]:
    """All processes below one, as far as `/proc` tells."""
    found, queue = set(), [root]
    while queue:
        parent = queue.pop()
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            children = [int(pid) for pid in path.read_text().split()]
            found.update(children)
            queue += children
    return found


def start_time(pid: int) -> str | None:
    """Distinguishes a process from a later one with its number; None: gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_no_process_outlives_a_killed_owner(tmp_path, rounds):
    draw = random.Random(8)
    for _ in range(rounds):
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        with owner:
            assert owner.stdout.readline() == "warm\n"
            time.sleep(draw.uniform(0.0, 0.3))
            below = {pid: start_time(pid) for pid in descendants(owner.pid)}
            os.kill(owner.pid, signal.SIGKILL)
        assert len(below) > 3
        deadline = time.monotonic() + 60
        while left := [pid for pid, born in below.items() if born and start_time(pid) == born]:
            assert time.monotonic() < deadline, left
            time.sleep(0.02)

    async def next_owner():
        provider = ZygoteProvider()
        async with SandboxPool(provider, folder=tmp_path) as pool:
            await pool.reap()
        await provider.close()

    asyncio.run(next_owner())
    assert not list(tmp_path.rglob("*.*"))
