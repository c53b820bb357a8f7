"""The journal of leases and the reaper: nothing outlives its owner."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from training_gym.sandboxes.pool import LeaseJournal, PoolPolicy, SandboxPool, leases, reap
from training_gym.spec.sandboxes import SandboxError, SandboxSpec
from training_gym.testing.folder_provider import FolderProvider

OWNER = """
import asyncio, sys
from pathlib import Path
from training_gym.sandboxes.pool import PoolPolicy, SandboxPool
from training_gym.spec.sandboxes import SandboxSpec
from training_gym.testing.folder_provider import FolderProvider

async def main(home):
    provider = FolderProvider(home / "remote", start_s=0.01)
    async with SandboxPool(provider, PoolPolicy(max_starting=4), folder=home / "leases") as pool:
        await pool.warm(SandboxSpec(), 6)
        print("warm", flush=True)
        while True:
            async with await pool.acquire(SandboxSpec()):
                await asyncio.sleep(0.005)

asyncio.run(main(Path(sys.argv[1])))
"""


def start_owner(home):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout.readline() == "warm\n"
    return owner


def far_future() -> float:
    return time.time() + 1e6


def test_a_killed_owner_leaves_nothing(tmp_path):
    draw = random.Random(1)
    for _ in range(3):
        with start_owner(tmp_path) as owner:
            time.sleep(draw.uniform(0.0, 0.2))
            os.kill(owner.pid, signal.SIGKILL)
            owner.wait()
        remote = FolderProvider(tmp_path / "remote")
        alive = len(list((tmp_path / "remote").glob("*.json")))
        assert alive >= 6, "the remote provider does not know that its customer died"
        assert asyncio.run(reap(remote, tmp_path / "leases", clock=far_future)) == alive
        assert not list((tmp_path / "remote").glob("*.json"))
        assert not list((tmp_path / "leases").rglob("*.*"))


def test_a_living_owner_is_left_alone(tmp_path):
    with start_owner(tmp_path) as owner:
        remote = FolderProvider(tmp_path / "remote")
        assert asyncio.run(reap(remote, tmp_path / "leases", clock=far_future)) == 0
        owner.kill()


def test_the_next_pool_destroys_what_a_dead_one_left(tmp_path):
    with start_owner(tmp_path) as owner:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    left = {path.name for path in (tmp_path / "remote").glob("*.json")}

    async def main():
        provider = FolderProvider(tmp_path / "remote")
        async with SandboxPool(provider, PoolPolicy(), folder=tmp_path / "leases") as pool:
            await pool.reap()
            return pool.metrics().reaped

    assert asyncio.run(main()) == len(left) > 0
    assert not list((tmp_path / "remote").iterdir())


class _Ghost(LeaseJournal):
    """An owner that dies without a word, in this process."""

    def die(self) -> None:
        os.close(self._file)
        os.close(self._lock)


def ghost(tmp_path, monkeypatch):
    journal = _Ghost("folder", tmp_path / "leases")
    monkeypatch.setattr(leases, "_held", leases._held - {journal._lock})
    return journal


def test_a_creation_that_ends_after_the_owner_is_found_by_its_tag(tmp_path, monkeypatch):
    journal = ghost(tmp_path, monkeypatch)
    lease = journal.begin()
    tags = journal.tags(lease)
    journal.die()

    async def main():
        provider = FolderProvider(tmp_path / "remote")
        assert await reap(provider, tmp_path / "leases") == 0
        assert list((tmp_path / "leases").rglob("*.jsonl")), "it may still come"
        await provider.create(SandboxSpec(tags=tags))
        assert await reap(provider, tmp_path / "leases") == 1
        assert await reap(provider, tmp_path / "leases", clock=far_future) == 0
        assert not list((tmp_path / "leases").rglob("*.*"))

    asyncio.run(main())


def test_what_cannot_be_destroyed_stays_in_the_journal(tmp_path, monkeypatch):
    journal = ghost(tmp_path, monkeypatch)

    class Stubborn(FolderProvider):
        refuse = True

        async def destroy(self, sandbox_id):
            if self.refuse:
                raise SandboxError("not now", fix="later")
            await super().destroy(sandbox_id)

    async def main():
        provider = Stubborn(tmp_path / "remote")
        lease = journal.begin()
        sandbox = await provider.create(SandboxSpec(tags=journal.tags(lease)))
        journal.created(lease, sandbox.id)
        journal.die()
        await reap(provider, tmp_path / "leases", clock=far_future)
        assert list((tmp_path / "leases").rglob("*.jsonl"))
        provider.refuse = False
        assert await reap(provider, tmp_path / "leases", clock=far_future) == 1
        assert not list((tmp_path / "leases").rglob("*.*"))

    asyncio.run(main())


def test_a_line_cut_short_by_death_is_passed_over(tmp_path, monkeypatch):
    journal = ghost(tmp_path, monkeypatch)
    first = journal.begin()
    journal.created(first, "a")
    os.write(journal._file, b'{"created":"half')
    journal.die()
    provider = FolderProvider(tmp_path / "remote")
    (tmp_path / "remote" / "a.json").write_text("{}")
    asyncio.run(reap(provider, tmp_path / "leases", clock=far_future))
    assert not list((tmp_path / "remote").iterdir()), "found by its id alone"


def test_the_journal_stays_small_and_keeps_what_is_open(tmp_path):
    journal = LeaseJournal("folder", tmp_path)
    kept = [journal.begin() for _ in range(5)]
    for lease in kept:
        journal.created(lease, f"id-{lease}")
    for _ in range(2500):
        lease = journal.begin()
        journal.created(lease, "x")
        journal.end(lease)
    (path,) = tmp_path.rglob("*.jsonl")
    text = path.read_text()
    assert text.count("\n") < 3100
    assert all(f'"created":"{lease}"' in text for lease in kept)
    for lease in kept:
        journal.end(lease)
    journal.close()
    assert not list(tmp_path.rglob("*.*"))


def test_a_forked_child_does_not_keep_its_parents_lease_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "_held", set())
    journal = LeaseJournal("folder", tmp_path / "leases")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go[0], 1)  # lives on while the parent's lock is tried
        os._exit(0)
    os.read(ready[0], 1)
    os.close(journal._lock)  # as the kernel does for a killed parent
    os.close(journal._file)
    try:
        provider = FolderProvider(tmp_path / "remote")
        asyncio.run(reap(provider, tmp_path / "leases", clock=far_future))
        assert not list((tmp_path / "leases").rglob("*.jsonl"))
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


@pytest.mark.slow
def test_a_killed_owner_leaves_nothing_at_fifty_random_moments(tmp_path):
    draw = random.Random(2)
    for number in range(50):
        home = tmp_path / str(number)
        with start_owner(home) as owner:
            time.sleep(draw.uniform(0.0, 0.5))
            os.kill(owner.pid, signal.SIGKILL)
            owner.wait()
        asyncio.run(reap(FolderProvider(home / "remote"), home / "leases", clock=far_future))
        assert not list((home / "remote").iterdir())
        assert not list((home / "leases").rglob("*.*"))
