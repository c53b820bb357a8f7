"""Facts of this machine, as a job on it would find them: affinity, cgroup limits, accelerators."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from pathlib import Path

from training_gym.jobs.memory import ask, available_bytes, cgroup_folders, words
from training_gym.spec.plan import Machine

_GIB = 1024**3


def probe_machine() -> Machine:
    """What this process may use; imports no torch and takes well under a second."""
    memory_gib = available_bytes() / _GIB
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
    both = words(folder / "cpu.max")
    if len(both) != 2:  # version 1 has a file for each
        both = words(folder / "cpu.cfs_quota_us") + words(folder / "cpu.cfs_period_us")
    if len(both) != 2 or both[0] in ("max", "-1"):
        return None
    return int(both[0]) / int(both[1])


def _nvidia() -> tuple[str, int, float] | None:
    """Product, count and memory of one accelerator in GiB, those made visible to us only."""
    if shutil.which("nvidia-smi") is None:
        return None
    answer = ask("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
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
    return ask("sysctl", "-n", "machdep.cpu.brand_string").strip(), 1, memory_gib
