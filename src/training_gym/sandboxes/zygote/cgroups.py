"""Control groups, v1 or v2 or a mixture: one set of groups per living sandbox, reused.

On v1 a sandbox joins by writing `0` to `tasks` while it has one thread: the kernel then skips the
lock whose grace period costs 5 to 15 ms with `cgroup.procs`. Groups are made once and given to one
sandbox after another, each when the last process of the one before is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training_gym.spec.sandboxes import MIB, Resources

CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD_US = 100_000
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Hierarchy:
    """One tree of groups and what it controls."""

    parent: Path
    """Where our groups are made."""
    controllers: tuple[str, ...]
    version: int

    @property
    def members(self) -> str:
        """The file a process writes `0` to in order to join."""
        return "tasks" if self.version == 1 else "cgroup.procs"


def find(
    groups: str | None = None, mounts: str | None = None, *, root: str = ""
) -> list[Hierarchy]:
    """The hierarchies in which we can make groups, each controller in one of them.

    Args:
        groups: Content of `/proc/self/cgroup`, read from there if None.
        mounts: Content of `/proc/self/mountinfo`, read from there if None.
        root: Put before every path; for tests.
    """
    groups = Path("/proc/self/cgroup").read_text() if groups is None else groups
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    own = dict(_own_groups(groups))
    found: list[Hierarchy] = []
    for point, mounted_root, kind, options in _mount_points(mounts):
        if kind == "cgroup":
            wanted = tuple(name for name in CONTROLLERS if name in options)
            group = own.get(next((name for name in wanted), ""), "/")
        else:
            wanted, group = CONTROLLERS, own.get("", "/")
        if not wanted:
            continue
        folder = Path(root + point) / os.path.relpath(group, mounted_root).removeprefix("../")
        taken = {name for known in found for name in known.controllers}
        hierarchy = _usable(folder, Path(root + point), kind, wanted, taken)
        if hierarchy is not None:
            found.append(hierarchy)
    return found


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            yield name, path


def _mount_points(text: str) -> Iterator[tuple[str, str, str, set[str]]]:
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if kinds[0] in ("cgroup", "cgroup2"):
            yield fields[4], fields[3], kinds[0], set(kinds[2].split(","))


def _usable(
    folder: Path, top: Path, kind: str, wanted: Sequence[str], taken: set[str]
) -> Hierarchy | None:
    """The nearest place from our own group upwards where groups with controllers can be made."""
    missing = tuple(name for name in wanted if name not in taken)
    places = [place for place in (folder, *folder.parents) if place == top or top in place.parents]
    for place in places if kind == "cgroup2" else places[:1]:
        if not os.access(place, os.W_OK) or not missing:
            continue
        if kind == "cgroup":
            return Hierarchy(place, missing, 1)
        enabled = _enable(place, missing)
        if enabled:
            return Hierarchy(place, enabled, 2)
    return None


def _enable(place: Path, wanted: Sequence[str]) -> tuple[str, ...]:
    """Turn controllers on for groups below; a group that has processes of its own refuses."""
    enabled = []
    control = place / "cgroup.subtree_control"
    try:
        available = (place / "cgroup.controllers").read_text().split()
        for name in wanted:
            if name in available:
                control.write_text(f"+{name}")
                enabled.append(name)
    except OSError:
        return ()
    return tuple(enabled)


class Group:
    """The groups of one sandbox, one in each hierarchy."""

    def __init__(self, hierarchies: Sequence[Hierarchy], name: str) -> None:
        """Make them; raises `OSError`."""
        self._hierarchies = hierarchies
        self._folders = [hierarchy.parent / name for hierarchy in hierarchies]
        self._limits: Resources | None = None
        self._members: tuple[int, ...] = ()
        self._events = -1
        for hierarchy, folder in zip(hierarchies, self._folders, strict=True):
            folder.mkdir(exist_ok=True)
            if "memory" in hierarchy.controllers:
                name = "memory.oom_control" if hierarchy.version == 1 else "memory.events"
                self._events = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)

    def limit(self, resources: Resources) -> None:
        """Set the limits. Files lie in memory, so that what may be written is added to memory."""
        if resources == self._limits:
            return
        memory = (resources.memory_mb + resources.disk_mb) * MIB
        quota = max(1000, int(resources.cpus * _PERIOD_US))
        for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True):
            old = hierarchy.version == 1
            if "memory" in hierarchy.controllers:
                self._limit_memory(folder, memory, old=old)
            if "pids" in hierarchy.controllers:
                _write(folder / "pids.max", str(resources.processes))
            if "cpu" in hierarchy.controllers:
                self._weigh(folder, resources.cpus, old=old)
            if "cpu" in hierarchy.controllers and old:
                _write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
                _write(folder / "cpu.cfs_quota_us", str(quota))
            elif "cpu" in hierarchy.controllers:
                _write(folder / "cpu.max", f"{quota} {_PERIOD_US}")
        self._limits = resources

    @staticmethod
    def _weigh(folder: Path, cpus: float, *, old: bool) -> None:
        """Among others a group counts as one process: let it count as one as nice as its owner."""
        weight = cpus * 1.25 ** -os.getpriority(os.PRIO_PROCESS, 0)
        if old:
            _write_if_there(folder / "cpu.shares", str(min(262_144, max(2, round(1024 * weight)))))
        else:
            _write_if_there(folder / "cpu.weight", str(min(10_000, max(1, round(100 * weight)))))

    @staticmethod
    def _limit_memory(folder: Path, memory: int, *, old: bool) -> None:
        if not old:
            _write(folder / "memory.max", str(memory))
            _write_if_there(folder / "memory.swap.max", "0")
            return
        # The second must never be below the first: which to write first depends on direction.
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        for _ in range(2):
            for name in names:
                with contextlib.suppress(OSError):
                    _write_if_there(folder / name, str(memory))
        if int((folder / names[0]).read_text()) > memory:
            raise OSError(errno.EBUSY, f"{folder} still holds more than {memory} bytes")

    @property
    def members(self) -> tuple[int, ...]:
        """Descriptors to write `0` to in order to join; they stay open as long as the group."""
        if not self._members:
            self._members = tuple(
                os.open(folder / hierarchy.members, os.O_WRONLY | os.O_CLOEXEC)
                for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True)
            )
        return self._members

    def oom_kills(self) -> int:
        """Processes the kernel has killed so far for lack of memory."""
        if self._events < 0:
            return 0
        text = os.pread(self._events, 4096, 0)
        _, found, rest = text.partition(b"oom_kill ")
        return int(rest.split(b"\n", 1)[0]) if found else 0

    def memory_bytes(self) -> int | None:
        """What it holds now, kernel memory and files included; None: not known."""
        for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True):
            if "memory" in hierarchy.controllers:
                old = hierarchy.version == 1
                name = "memory.usage_in_bytes" if old else "memory.current"
                return int((folder / name).read_text())
        return None

    def remove(self) -> bool:
        """Remove them; whether all are gone. Needs all processes dead, and waits for them."""
        for fd in (*self._members, *([self._events] if self._events >= 0 else [])):
            os.close(fd)
        self._members, self._events = (), -1
        deadline = time.monotonic() + _PATIENCE_S
        left = list(self._folders)
        while left and time.monotonic() < deadline:
            left = [folder for folder in left if not _remove(folder)]
            if left:
                time.sleep(0.01)
        return not left


def remove_stale(hierarchies: Sequence[Hierarchy], prefix: str) -> None:
    """Remove the groups of an owner that is gone."""
    for hierarchy in hierarchies:
        for folder in hierarchy.parent.glob(f"{prefix}*"):
            _remove(folder)


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _write_if_there(path: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _write(path, text)
