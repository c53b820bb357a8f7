"""Limits that hold over processes, and that a killed process cannot keep."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.sandboxes.pool.permits import CreateRate, StartingPermits
from training_gym.testing.simulated_time import run_simulated

PROPERTY = settings(max_examples=settings.default.max_examples // 4)


@PROPERTY
@given(per_s=st.floats(0.5, 200), burst=st.integers(1, 5), takers=st.integers(1, 40))
def test_never_more_creations_than_the_rate_and_the_burst_allow(
    tmp_path_factory, per_s, burst, takers
):
    folder = tmp_path_factory.mktemp("rate")

    async def main() -> list[float]:
        # Two objects on one file are what two processes are.
        rates = [CreateRate(folder / "creates", per_s=per_s, burst=burst) for _ in range(2)]
        times = []

        async def one(number: int) -> None:
            await rates[number % 2].take()
            times.append(asyncio.get_running_loop().time())

        await asyncio.gather(*(one(number) for number in range(takers)))
        return sorted(times)

    times = run_simulated(main())
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            most = burst + (times[last] - begin) * per_s
            assert last - first + 1 <= most + 1e-6 * takers
    assert times[-1] <= (takers - 1) / per_s + 0.01, "and none is held back for nothing"


def test_what_the_provider_asked_for_holds_for_all(tmp_path):
    async def main() -> tuple[bool, float]:
        one = CreateRate(tmp_path / "creates", per_s=10)
        two = CreateRate(tmp_path / "creates", per_s=10)
        one.postpone(7.0)
        early = two.try_take()
        await two.take()
        return early, asyncio.get_running_loop().time()

    early, at = run_simulated(main())
    assert not early
    assert at == pytest.approx(7.0, abs=0.01)


def test_a_clock_that_began_anew_is_noticed(tmp_path):
    async def later() -> None:
        await asyncio.sleep(1e6)
        await CreateRate(tmp_path / "creates", per_s=1).take()

    async def after_boot() -> float:
        await CreateRate(tmp_path / "creates", per_s=1).take()
        return asyncio.get_running_loop().time()

    run_simulated(later())
    assert run_simulated(after_boot()) == 0.0


@PROPERTY
@given(limit=st.integers(1, 6), steps=st.lists(st.booleans(), max_size=40))
def test_permits_are_conserved(tmp_path_factory, limit, steps):
    folder = tmp_path_factory.mktemp("permits")
    mine, theirs = StartingPermits(folder, limit), StartingPermits(folder, limit)
    held: list[tuple[StartingPermits, int]] = []
    for number, take in enumerate(steps):
        owner = (mine, theirs)[number % 2]
        if take:
            permit = owner.try_take()
            assert (permit is None) == (len(held) == limit)
            if permit is not None:
                held.append((owner, permit))
        elif held:
            owner, permit = held.pop()
            owner.give_back(permit)
        assert mine.held + theirs.held == len(held) <= limit
    for owner, permit in held:
        owner.give_back(permit)
    last = [mine.try_take() for _ in range(limit)]
    assert None not in last
    for permit in last:
        mine.give_back(permit)


HOLDER = """
import sys, time
from pathlib import Path
from training_gym.sandboxes.pool.permits import StartingPermits
permits = StartingPermits(Path(sys.argv[1]), 3)
held = [permits.try_take() for _ in range(3)]
print("held" if None not in held else "missed", flush=True)
time.sleep(600)
"""


def test_a_killed_process_gives_its_permits_back(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        permits = StartingPermits(tmp_path, 3)
        assert permits.try_take() is None
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        permit = asyncio.run(asyncio.wait_for(permits.take(), 20))
        permits.give_back(permit)


def _create_many(path, count, out):
    async def main() -> None:
        rate = CreateRate(path, per_s=200)
        for _ in range(count):
            await rate.take()
            out.put(time.monotonic())

    asyncio.run(main())


def test_real_processes_share_one_rate(tmp_path):
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    workers = [
        context.Process(target=_create_many, args=(tmp_path / "creates", 20, out)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    times = sorted(out.get(timeout=60) for _ in range(40))
    for worker in workers:
        worker.join()
    # Turns are booked 5 ms apart; a busy machine can only be late for them.
    assert times[-1] - times[0] >= 0.9 * 38 / 200
