"""Facts of this machine, as a job on it would find them: affinity, cgroup limits, accelerators."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

from training_gym.spec.plan import Machine

_GIB = 1024**3


def probe_machine() -> Machine:
    """What this process may use; imports no torch and takes well under a second."""
    memory_gib = _memory_bytes() / _GIB
    name, count, accelerator_gib = _nvidia() or _apple(memory_gib) or (None, 0, 0.0)
    return Machine(
        cpu_cores=_cpu_cores(),
        memory_gib=round(memory_gib, 2),
        accelerator=name,
        accelerators=count,
        accelerator_memory_gib=round(accelerator_gib, 2),
        platform=sys.platform,
    )


def _cpu_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quotas = [quota for folder in cgroup_folders() if (quota := _cpu_quota(folder)) is not None]
    return max(1, int(min([allowed, *quotas])))


def _cpu_quota(folder: Path) -> float | None:
    """Cores' worth of time that a cgroup allows; None: no limit."""
    both = _words(folder / "cpu.max")
    if len(both) != 2:  # version 1 has a file for each
        both = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    if len(both) != 2 or both[0] in ("max", "-1"):
        return None
    return int(both[0]) / int(both[1])


def _memory_bytes() -> int:
    """What can be had now: the least of what the system and each enclosing cgroup has left."""
    left = [room for folder in cgroup_folders() if (room := _memory_left(folder)) is not None]
    return max(0, min([_system_memory_bytes(), *left]))


def _system_memory_bytes() -> int:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        return _mac_available_bytes()
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _memory_left(folder: Path) -> int | None:
    """Bytes a cgroup still allows, file caches it could drop counted as free; None: no limit."""
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = _words(folder / limit_name), _words(folder / usage_name)
        if not limit or not usage or limit[0] == "max" or int(limit[0]) >= 1 << 60:
            continue
        pairs = [line.split() for line in _lines(folder / "memory.stat")]
        cache = next((int(pair[1]) for pair in pairs if pair[0] == cache_name), 0)
        return int(limit[0]) - int(usage[0]) + cache
    return None


def cgroup_folders(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """This process's cgroups and all that enclose them; empty where there are none."""
    folders: list[Path] = []
    for line in _lines(membership):
        _, controllers, path = line.split(":", 2)
        bases = [root / name for name in controllers.split(",")] if controllers else [root]
        for base in bases:
            here = base / path.lstrip("/")
            chain = [here, *here.parents]
            inside = [folder for folder in chain if folder == base or base in folder.parents]
            folders += [folder for folder in inside if folder.is_dir() and folder not in folders]
    return folders


def _nvidia() -> tuple[str, int, float] | None:
    """Product, count and memory of one accelerator in GiB, those made visible to us only."""
    if shutil.which("nvidia-smi") is None:
        return None
    answer = _ask("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    rows = [row for row in csv.reader(answer.splitlines(), skipinitialspace=True) if len(row) == 2]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = [device for device in visible.split(",") if device.strip() not in ("", "-1")]
        rows = rows[: len(named)]
    if not rows:
        return None
    return rows[0][0], len(rows), min(float(row[1]) for row in rows) / 1024


def _apple(memory_gib: float) -> tuple[str, int, float] | None:
    """The accelerator of Apple's own chips shares the machine's memory."""
    if sys.platform != "darwin" or os.uname().machine != "arm64":
        return None
    return _ask("sysctl", "-n", "machdep.cpu.brand_string").strip(), 1, memory_gib


def _mac_available_bytes() -> int:
    """Free, inactive, purgeable and speculative pages."""
    lines = _ask("vm_stat").splitlines()
    page = int("".join(char for char in lines[0] if char.isdigit()) or 4096) if lines else 4096
    kinds = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
    counts = [line.split(":")[1].strip(" .") for line in lines if line.startswith(kinds)]
    return page * sum(int(count) for count in counts)


def _ask(*command: str) -> str:
    """What a tool says; nothing if it fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]
