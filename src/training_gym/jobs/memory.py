"""Memory a process can still get: the least of what the system and each enclosing cgroup has left.

Limits of both versions of cgroups count, of a container as of a batch job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def available_bytes() -> int:
    """What can be had now."""
    left = [room for folder in cgroup_folders() if (room := memory_left(folder)) is not None]
    return max(0, min([_system_bytes(), *left]))


def memory_left(folder: Path) -> int | None:
    """Bytes a cgroup still allows, file caches it could drop counted as free; None: no limit."""
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = words(folder / limit_name), words(folder / usage_name)
        if not limit or not usage or limit[0] == "max" or int(limit[0]) >= 1 << 60:
            continue
        pairs = [line.split() for line in lines(folder / "memory.stat")]
        cache = next((int(pair[1]) for pair in pairs if pair[0] == cache_name), 0)
        return int(limit[0]) - int(usage[0]) + cache
    return None


def cgroup_folders(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """This process's cgroups and all that enclose them; empty where there are none."""
    folders: list[Path] = []
    for line in lines(membership):
        _, controllers, path = line.split(":", 2)
        bases = [root / name for name in controllers.split(",")] if controllers else [root]
        for base in bases:
            here = base / path.lstrip("/")
            chain = [here, *here.parents]
            inside = [folder for folder in chain if folder == base or base in folder.parents]
            folders += [folder for folder in inside if folder.is_dir() and folder not in folders]
    return folders


def lines(path: Path) -> list[str]:
    """Lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def words(path: Path) -> list[str]:
    """Words of a file of the system; none if it cannot be read."""
    return [word for line in lines(path) for word in line.split()]


def ask(*command: str) -> str:
    """What a tool says; nothing if it fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _system_bytes() -> int:
    for line in lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        return _mac_bytes()
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _mac_bytes() -> int:
    """Free, inactive, purgeable and speculative pages."""
    said = ask("vm_stat").splitlines()
    page = int("".join(char for char in said[0] if char.isdigit()) or 4096) if said else 4096
    kinds = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
    counts = [line.split(":")[1].strip(" .") for line in said if line.startswith(kinds)]
    return page * sum(int(count) for count in counts)
