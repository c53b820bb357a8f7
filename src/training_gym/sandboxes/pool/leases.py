"""The journal of leases: what a process has made and not yet destroyed, readable after its death.

Each owner (one pool of one process) has two files: a lock it holds while it lives and a journal it
appends to *before* it asks the provider for a sandbox, after it got it, and after it destroyed it.
Every sandbox carries the owner and the lease as tags. Whoever finds a journal whose lock is free
can therefore destroy everything the dead owner left, by id and by tag, even what was still being
created when it died; the journal goes last.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from training_gym.spec.home import home
from training_gym.spec.sandboxes import SandboxError, SandboxProvider

OWNER_TAG = "training-gym-owner"
LEASE_TAG = "training-gym-lease"
_COMPACT_AT = 3000


def leases_directory() -> Path:
    """Where owners keep their journals: one folder a provider."""
    return home() / "leases"


class LeaseJournal:
    """One owner's record. Written with plain appends: a killed process loses nothing of it."""

    def __init__(self, provider: str, folder: Path | None = None) -> None:
        """Become an owner; the files exist and are on disk when this returns."""
        self._folder = (folder or leases_directory()) / provider
        self._folder.mkdir(parents=True, exist_ok=True)
        self.owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._lock = _new_lock(self._folder / f"{self.owner}.lock")
        self._path = self._folder / f"{self.owner}.jsonl"
        self._file = os.open(self._path, _APPEND, 0o600)
        self._lines = 0
        self._numbers = 0
        self.open: dict[str, str | None] = {}
        """Leases not yet ended, with the id of the sandbox once there is one."""
        for entry in (self._path, self._folder):
            _sync(entry)

    def begin(self) -> str:
        """A new lease, written down before its sandbox is asked for."""
        self._numbers += 1
        lease = f"{self.owner}-{self._numbers}"
        self.open[lease] = None
        self._append({"begin": lease, "at": time.time()})
        return lease

    def tags(self, lease: str) -> dict[str, str]:
        """What the lease's sandbox must carry."""
        return {OWNER_TAG: self.owner, LEASE_TAG: lease}

    def created(self, lease: str, sandbox_id: str) -> None:
        """The lease has its sandbox."""
        self.open[lease] = sandbox_id
        self._append({"created": lease, "id": sandbox_id})

    def end(self, lease: str) -> None:
        """The lease's sandbox is destroyed, or never came to be."""
        del self.open[lease]
        self._append({"end": lease})
        if self._lines >= _COMPACT_AT and self._lines > 8 * len(self.open):
            self._compact()

    def close(self) -> None:
        """Stop owning; with nothing open the files go, else the next reaper finds them."""
        os.close(self._file)
        if not self.open:
            self._path.unlink(missing_ok=True)
            (self._folder / f"{self.owner}.lock").unlink(missing_ok=True)
        _unlock(self._lock)

    def _append(self, entry: dict[str, Any]) -> None:
        os.write(self._file, _line(entry))
        self._lines += 1

    def _compact(self) -> None:
        fresh = self._path.with_suffix(".new")
        lines = [{"begin": lease, "at": time.time()} for lease in self.open]
        lines += [{"created": lease, "id": found} for lease, found in self.open.items() if found]
        fresh.write_bytes(b"".join(map(_line, lines)))
        fresh.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, _APPEND, 0o600)
        self._lines = len(lines)


async def reap(
    provider: SandboxProvider,
    folder: Path | None = None,
    *,
    settle_s: float = 120.0,
    clock: Callable[[], float] = time.time,
) -> int:
    """Destroy what dead owners left with this provider; returns how many sandboxes.

    A journal stays until the provider lists nothing more of its owner and its last creation under
    way is older than `settle_s`: a request sent just before the owner's death may still become a
    sandbox. Raises the provider's error if it cannot be asked.
    """
    destroyed = 0
    for path in sorted(((folder or leases_directory()) / provider.name).glob("*.jsonl")):
        lock = _lock_of_dead(path)
        if lock is None:
            continue
        try:
            if not path.exists():  # its owner ended in good order meanwhile, or another reaped it
                path.with_suffix(".lock").unlink(missing_ok=True)
                continue
            count, settled = await _reap_one(provider, path, clock() - settle_s)
            destroyed += count
            if settled:
                path.unlink(missing_ok=True)
                path.with_suffix(".lock").unlink(missing_ok=True)
        finally:
            _unlock(lock)
    return destroyed


async def _reap_one(
    provider: SandboxProvider, path: Path, settled_before: float
) -> tuple[int, bool]:
    """Sandboxes destroyed, and whether nothing more can come."""
    begun: dict[str, float] = {}
    ids: dict[str, str] = {}
    for entry in _entries(path):
        if "begin" in entry:
            begun[entry["begin"]] = entry["at"]
        elif "created" in entry:
            ids[entry["created"]] = entry["id"]
        elif "end" in entry:
            begun.pop(entry["end"], None)
            ids.pop(entry["end"], None)
    listed = {info.id for info in await provider.list({OWNER_TAG: path.stem})}
    failed = False
    for sandbox_id in sorted(listed | set(ids.values())):
        try:
            await provider.destroy(sandbox_id)
        except SandboxError:
            failed = True  # stays in the journal for the next round
    # Only a remote provider can still finish what a dead process asked for.
    under_way = provider.capabilities().remote and any(
        at > settled_before for lease, at in begun.items() if lease not in ids
    )
    return len(listed), not failed and not under_way


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # the line that its writer was killed in


def _new_lock(path: Path) -> int:
    """A locked file that appears under its name only when it is locked."""
    hidden = path.with_name(f".{path.name}")
    file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    hidden.rename(path)
    _held.add(file)
    return file


def _unlock(file: int) -> None:
    _held.discard(file)
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


_held: set[int] = set()


def _let_go_in_child() -> None:
    """A forked child must not keep its parent's locks alive beyond the parent."""
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def _lock_of_dead(journal: Path) -> int | None:
    """The lock, if its owner is dead and nobody else is reaping it."""
    try:
        file = os.open(journal.with_suffix(".lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # the owner is just ending, or another process has just reaped it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    _held.add(file)
    return file


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
