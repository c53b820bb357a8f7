"""Whether the warm pool keeps its promises: blocking under drift, a quick hand-over, no leaks.

    .venv/bin/python benchmarks/sandbox_pool.py drift   [--blocking 0.01] [--seeds 3]
    .venv/bin/python benchmarks/sandbox_pool.py acquire [--acquires 2000] [--rate 100]
    .venv/bin/python benchmarks/sandbox_pool.py leaks   [--sandboxes 10000]
    .venv/bin/python benchmarks/sandbox_pool.py kills   [--kills 50]

`drift` is in simulated time on the fake provider: 5, 20, 8 and 30 acquires a second for 1,000
seconds each, starts of 2 s doubling at 2,500 s; the adaptive pool beside a fixed buffer of the size
that the first load needs. `acquire`, `leaks` and `kills` use real sandboxes of the local provider.

`acquire` tells the wall time of acquires that were not blocked, and beside it their CPU time: on a
busy machine the difference is the scheduler's. `leaks` uses that many sandboxes through the pool
and then looks for processes, control groups, mounts, files and journals of theirs; `kills` does so
after SIGKILL of the pool's owner at random moments. Linux; root for tier A.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from training_gym.sandboxes.pool import PoolMetrics, PoolPolicy, SandboxPool
from training_gym.sandboxes.registry import find
from training_gym.spec.sandboxes import ExecRequest, SandboxSpec
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.sandbox_leaks import traces
from training_gym.testing.simulated_time import run_simulated

SPEC = SandboxSpec()
SEGMENT_S = 1000.0
LOADS = (5.0, 20.0, 8.0, 30.0)
PRINT = ExecRequest(code="print(1)")


async def drift(seed: int, policy: PoolPolicy, warm: int, *, fixed: bool) -> PoolMetrics:
    draw, clock = random.Random(seed), asyncio.get_running_loop().time

    def start_s() -> float:
        mean = 2.0 if clock() < 2.5 * SEGMENT_S else 4.0
        return draw.lognormvariate(math.log(mean) - 0.125, 0.5)

    provider = FakeProvider(start_s=start_s, clock=clock)
    with tempfile.TemporaryDirectory() as folder:
        async with SandboxPool(provider, policy, folder=Path(folder)) as pool:
            await pool.warm(SPEC, warm)
            if not fixed:
                await pool.warm(SPEC, 0)
            begin = clock()

            async def episode() -> None:
                async with await pool.acquire(SPEC):
                    await asyncio.sleep(1.0)

            async with asyncio.TaskGroup() as episodes:
                while (passed := clock() - begin) < len(LOADS) * SEGMENT_S:
                    await asyncio.sleep(draw.expovariate(LOADS[int(passed / SEGMENT_S)]))
                    episodes.create_task(episode())
            metrics = pool.metrics()
    assert not provider.alive
    return metrics


def run_drift(blocking: float, seeds: int) -> dict[str, object]:
    rows = {}
    for name, fixed in (("adaptive", False), ("fixed buffer", True)):
        # A buffer that never moves is one whose floor and ceiling are the same.
        policy = PoolPolicy(blocking=blocking, **({"max_spares": 18} if fixed else {}))
        read = [run_simulated(drift(seed, policy, 18, fixed=fixed)) for seed in range(seeds)]
        rows[name] = {
            "blocking": [round(metrics.blocking, 4) for metrics in read],
            "blocking_over_target": round(
                sum(metrics.blocking for metrics in read) / seeds / blocking, 2
            ),
            "mean_idle": round(sum(m.idle_sandbox_s / m.uptime_s for m in read) / seeds, 1),
            "mean_starting": round(sum(m.outstanding_mean for m in read) / seeds, 1),
            "acquires": sum(metrics.acquires for metrics in read),
        }
    return rows


async def acquire(count: int, rate_per_s: float) -> dict[str, object]:
    draw, waits, works, provider = random.Random(1), [], [], find("local")
    with tempfile.TemporaryDirectory() as folder:
        async with SandboxPool(provider, PoolPolicy(blocking=0.001), folder=Path(folder)) as pool:
            await pool.warm(SPEC, 8)

            async def episode() -> None:
                begin, worked = time.perf_counter(), time.thread_time()
                async with await pool.acquire(SPEC) as lease:
                    took = time.perf_counter() - begin
                    if not lease.missed:
                        waits.append(took)
                        works.append(time.thread_time() - worked)
                    assert (await lease.sandbox.exec(PRINT)).text == "1\n"

            async with asyncio.TaskGroup() as episodes:
                for _ in range(count):
                    await asyncio.sleep(draw.expovariate(rate_per_s))
                    episodes.create_task(episode())
            metrics = pool.metrics()
        await provider.close()
    waits.sort()
    works.sort()
    return {
        "not_blocked": len(waits),
        "acquire_p50_ms": round(1e3 * waits[len(waits) // 2], 3),
        "acquire_p99_ms": round(1e3 * waits[int(0.99 * len(waits))], 3),
        "acquire_cpu_p99_ms": round(1e3 * works[int(0.99 * len(works))], 3),
        "blocking": round(metrics.blocking, 4),
        "outstanding_mean": round(metrics.outstanding_mean, 2),
        "load": os.getloadavg()[0],
    }


def left_behind(home: Path) -> dict[str, int]:
    """How much there is of this home's owners; waits, since kernels free namespaces at leisure."""
    deadline = time.monotonic() + 30
    while not (found := traces(home)).none and time.monotonic() < deadline:
        time.sleep(0.2)
    if not found.none:
        print(found, file=sys.stderr)
    journals = [*home.glob("leases/**/*.jsonl"), *home.glob("leases/**/*.lock")]
    return {
        "processes": len(found.processes),
        "control_groups": len(found.groups),
        "mounts": len(found.mounts),
        "files": len(found.files),
        "journals": len(journals),
    }


async def use_many(count: int) -> float:
    provider = find("local")
    begin = time.perf_counter()
    todo = iter(range(count))
    async with SandboxPool(provider, PoolPolicy(max_spares=16)) as pool:

        async def worker() -> None:
            for _ in todo:
                async with await pool.acquire(SPEC) as lease:
                    assert (await lease.sandbox.exec(PRINT)).text == "1\n"

        await asyncio.gather(*(worker() for _ in range(8)))
        seen = pool.metrics().acquires
    await provider.close()
    assert seen == count
    return time.perf_counter() - begin


def run_leaks(count: int) -> dict[str, object]:
    with own_home() as home:
        seconds = asyncio.run(use_many(count))
        return {"sandboxes": count, "per_s": round(count / seconds, 1), "left": left_behind(home)}


def run_kills(kills: int) -> dict[str, object]:
    draw = random.Random(3)
    with own_home() as home:
        for _ in range(kills):
            with subprocess.Popen([sys.executable, __file__, "own"]) as owner:
                time.sleep(draw.uniform(0.3, 3.0))
                os.kill(owner.pid, signal.SIGKILL)
        asyncio.run(use_many(1))  # the next pool clears up
        return {"kills": kills, "left": left_behind(home)}


@contextlib.contextmanager
def own_home() -> Iterator[Path]:
    """A home of this run's own, so that others at work on the machine do not count."""
    with tempfile.TemporaryDirectory(prefix="pool-benchmark-") as folder:
        Path(folder).chmod(0o755)
        os.environ["TRAINING_GYM_HOME"] = folder
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["drift", "acquire", "leaks", "kills", "own"])
    parser.add_argument("--blocking", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--acquires", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--sandboxes", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    given = parser.parse_args()
    if given.what == "own":
        asyncio.run(use_many(1_000_000))
    elif given.what == "drift":
        print(json.dumps(run_drift(given.blocking, given.seeds)))
    elif given.what == "acquire":
        print(json.dumps(asyncio.run(acquire(given.acquires, given.rate))))
    elif given.what == "leaks":
        print(json.dumps(run_leaks(given.sandboxes)))
    else:
        print(json.dumps(run_kills(given.kills)))


if __name__ == "__main__":
    main()
