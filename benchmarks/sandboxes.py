"""Sandboxes against bubblewrap, runc and podman: one Python snippet in a place nobody used before.

    python benchmarks/sandboxes.py                  # interleaved rounds, medians and ratios
    python benchmarks/sandboxes.py --only ours      # without the peers
    python benchmarks/sandboxes.py --many 10000     # so many in one run, then what was left behind

Run as root for tier A. Peers are those of Debian's packages; one that is missing is left out. All
take turns within each round, so that what else the machine does hits all alike: read the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.home import home
from training_gym.spec.sandboxes import ExecRequest, SandboxSpec
from training_gym.testing.sandbox_leaks import traces

SNIPPET = "print(sum(range(1000)))"
REQUEST = ExecRequest(code=SNIPPET)
TARGETS = {"warm": {"bubblewrap": 6, "podman": 60}, "on demand": {"bubblewrap": 3, "podman": 30}}


def expect(output: str) -> None:
    assert output.strip() == "499500", output


def run_program(*words: str) -> None:
    expect(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def peers(folder: Path) -> dict[str, Callable[[], None]]:
    """Each runs the snippet in a new sandbox of its kind over the host's `/usr`, read-only."""
    found: dict[str, Callable[[], None]] = {}
    root = folder / "root"
    for name in ("usr", "proc", "dev", "tmp", "etc", "sys", "run"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(os.readlink(f"/{name}"))
    python = ("/usr/bin/python3", "-c", SNIPPET)
    if shutil.which("bwrap"):
        links = [w for n in ("bin", "lib", "lib64") for w in ("--symlink", f"usr/{n}", f"/{n}")]
        words = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr")
        words += (*links, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *python)
        found["bubblewrap"] = lambda: run_program(*words)
    if shutil.which("runc") and os.geteuid() == 0:
        found["runc"] = runc(folder, root, python)
    if shutil.which("podman"):
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
        found["podman"] = lambda: run_program(
            "podman", "run", "--rm", "--network", "none", *limits, "-v", "/usr:/usr:ro",
            "--rootfs", str(root), *python,
        )  # fmt: skip
    return {name: run for name, run in found.items() if _works(name, run)}


def runc(folder: Path, root: Path, argv: tuple[str, ...]) -> Callable[[], None]:
    bundle = folder / "bundle"
    bundle.mkdir()
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    spec = json.loads((bundle / "config.json").read_text())
    spec["root"] = {"path": str(root), "readonly": True}
    spec["process"].update(terminal=False, args=list(argv), rlimits=[])
    spec["mounts"].append(
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
    )
    (bundle / "config.json").write_text(json.dumps(spec))
    count = iter(range(10**9))
    return lambda: run_program(
        "runc", "run", "-b", str(bundle), f"bench-{os.getpid()}-{next(count)}"
    )


def _works(name: str, run: Callable[[], None]) -> bool:
    try:
        run()
    except (subprocess.CalledProcessError, OSError, AssertionError) as error:
        print(f"{name} is left out: {getattr(error, 'stderr', '') or error}", file=sys.stderr)
        return False
    return True


async def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    result = action()
    if asyncio.iscoroutine(result):
        await result
    return (time.perf_counter() - began) * 1e3


class Ours:
    """The zygote: a sandbox ready before, or made when it is asked for."""

    def __init__(self) -> None:
        self.provider = ZygoteProvider()
        self.create_ms: list[float] = []
        self.destroy_ms: list[float] = []

    async def warm(self) -> float:
        sandbox = await self.provider.create(SandboxSpec())
        # As a pool does: made before it is needed, and its processor's caches are cold again.
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        expect((await sandbox.exec(REQUEST)).text)
        took = (time.perf_counter() - began) * 1e3
        self.destroy_ms.append(await timed(sandbox.destroy))
        return took

    async def on_demand(self) -> float:
        began = time.perf_counter()
        sandbox = await self.provider.create(SandboxSpec())
        self.create_ms.append((time.perf_counter() - began) * 1e3)
        expect((await sandbox.exec(REQUEST)).text)
        took = (time.perf_counter() - began) * 1e3
        self.destroy_ms.append(await timed(sandbox.destroy))
        return took

    async def throughput(self, seconds: float, drivers: int = 2) -> float:
        done = 0
        end = time.monotonic() + seconds

        async def drive() -> None:
            nonlocal done
            while time.monotonic() < end:
                sandbox = await self.provider.create(SandboxSpec())
                await sandbox.exec(REQUEST)
                await sandbox.destroy()
                done += 1

        await asyncio.gather(*(drive() for _ in range(drivers)))
        return done / seconds

    async def idle_mb(self, count: int) -> float | None:
        held = [await self.provider.create(SandboxSpec()) for _ in range(count)]
        groups = [self.provider._claim.groups.of(sandbox.id) for sandbox in held]
        used = [group.memory_bytes() for group in groups if group is not None]
        for sandbox in held:
            await sandbox.destroy()
        known = [value for value in used if value is not None]
        return statistics.median(known) / 2**20 if known else None

    async def forks(self, megabytes: int, count: int) -> tuple[float, float]:
        parent = await self.provider.create(SandboxSpec())
        code = f"for i in range({megabytes * 10}): open(f'f{{i}}', 'w').write('y' * 104857)"
        assert (await parent.exec(ExecRequest(code=code))).ok
        began = time.perf_counter()
        snapshot = await parent.snapshot()
        checkpoint_ms = (time.perf_counter() - began) * 1e3
        spec = SandboxSpec(image=snapshot.image)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            child = await self.provider.create(spec)
            times.append((time.perf_counter() - began) * 1e3)
            await child.destroy()
        await parent.destroy()
        return checkpoint_ms, statistics.median(times)


async def compare(rounds: int, only_ours: bool) -> dict[str, object]:
    ours = Ours()
    with tempfile.TemporaryDirectory() as folder:
        others = {} if only_ours else peers(Path(folder))
        await ours.on_demand()
        times: dict[str, list[float]] = {name: [] for name in ("warm", "on demand", *others)}
        for _ in range(rounds):
            times["warm"].append(await ours.warm())
            times["on demand"].append(await ours.on_demand())
            for name, run in others.items():
                times[name].append(await timed(run))
        created_ms = statistics.median(ours.create_ms)
        destroyed_ms = statistics.median(ours.destroy_ms)
        checkpoint_ms, fork_ms = await ours.forks(50, 15)
        per_s = await ours.throughput(5.0)
        idle_mb = await ours.idle_mb(50)
        await ours.provider.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "tier": ours.provider.tier,
        "load": os.getloadavg()[0],
        "median_ms": {name: round(value, 2) for name, value in medians.items()},
        "p10_ms": {name: round(sorted(v)[len(v) // 10], 2) for name, v in times.items()},
        "ratios": {
            mode: {name: round(medians[name] / medians[mode], 1) for name in others}
            for mode in ("warm", "on demand")
        },
        "wanted_ratios": TARGETS,
        "create_ms": round(created_ms, 2),
        "destroy_ms": round(destroyed_ms, 2),
        "create_run_destroy_per_s": round(per_s, 1),
        "idle_mb": None if idle_mb is None else round(idle_mb, 2),
        "checkpoint_50_mb_ms": round(checkpoint_ms, 1),
        "fork_from_50_mb_ms": round(fork_ms, 2),
    }


async def many(count: int, at_once: int) -> dict[str, object]:
    """Create, use and destroy so many; then look for what they left."""
    provider = ZygoteProvider()
    began = time.monotonic()
    left = count

    async def drive() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            async with await provider.create(SandboxSpec()) as sandbox:
                expect((await sandbox.exec(REQUEST)).text)

    fds_before = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(drive() for _ in range(at_once)))
    took = time.monotonic() - began
    fds_after = len(os.listdir("/proc/self/fd"))
    await provider.close()
    found = traces(home())
    return {
        "sandboxes": count,
        "at_once": at_once,
        "per_s": round(count / took, 1),
        "descriptors_before_and_after": [fds_before, fds_after],
        "left": {
            "processes": len(found.processes),
            "groups": len(found.groups),
            "mounts": len(found.mounts),
            "files": len(found.files),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", choices=["ours"])
    parser.add_argument("--many", type=int, metavar="N")
    parser.add_argument("--at-once", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gym-bench-") as folder:
        os.chmod(folder, 0o755)
        os.environ["TRAINING_GYM_HOME"] = folder
        if given.many:
            result = asyncio.run(many(given.many, given.at_once))
        else:
            result = asyncio.run(compare(given.rounds, given.only == "ours"))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
