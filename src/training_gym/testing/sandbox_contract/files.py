"""Clauses that run no command: tiers, files, snapshots, the end of sandboxes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from training_gym.spec.sandboxes import (
    TIERS,
    SandboxDied,
    SandboxFileError,
    SandboxProvider,
    SandboxSpec,
    SandboxUnsupported,
    SnapshotImage,
    StartFailed,
)
from training_gym.testing.sandbox_contract.clause import Clause, raises, shell


async def describes_itself(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Its tiers are known ones; the one it works with is the one its sandboxes carry."""
    reports = await provider.probe()
    assert all(report.tier in TIERS for report in reports)
    working = [report.tier for report in reports if report.works]
    assert working, [report.reason for report in reports]
    assert all(report.reason and report.fix for report in reports if not report.works)
    async with await provider.create(spec) as sandbox:
        assert sandbox.tier in working
        assert sandbox.spec == spec
        assert sandbox.workspace.startswith("/")


async def keeps_files(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """What is written is read, whole and in pieces, folders are made, nothing is cut."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(30):
            yield bytes([number]) * 100_000

    async with await provider.create(spec) as sandbox:
        await sandbox.write_file("a/b/small", b"one\0two\xff")
        await sandbox.write_file("a/b/small", b"one\0\xff")
        assert await sandbox.read_file(f"{sandbox.workspace}/a/b/small") == b"one\0\xff"
        await sandbox.write_file("large", pieces())
        parts = [part async for part in sandbox.read_chunks("large")]
        assert max(map(len, parts)) <= 1 << 20
        assert b"".join(parts) == b"".join([piece async for piece in pieces()])
        await sandbox.write_file("empty", b"")
        assert await sandbox.read_file("empty") == b""


async def refuses_files_typed(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Absent, larger than allowed, more than the disk holds."""
    async with await provider.create(spec) as sandbox:
        await raises(SandboxFileError, sandbox.read_file("absent"))
        await sandbox.write_file("eleven", b"x" * 11)
        await raises(SandboxFileError, sandbox.read_file("eleven", max_bytes=10))
        assert await sandbox.read_file("eleven", max_bytes=11) == b"x" * 11


async def snapshots_and_forks(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Forks start with the parent's files, go their own ways, and can be forked again."""
    async with await provider.create(spec) as parent:
        if "files" not in provider.capabilities().snapshots:
            await raises(SandboxUnsupported, parent.snapshot())
            await raises(SandboxUnsupported, parent.fork())
            return
        await parent.write_file("kept", b"parent")
        await parent.write_file("changed", b"before")
        snapshot = await parent.snapshot()
        await parent.write_file("changed", b"after")
        early = await provider.create(spec.changed(image=snapshot.image))
        assert await early.read_file("changed") == b"before"
        await provider.delete_snapshot(snapshot.id)
        assert await early.read_file("kept") == b"parent"
        first, second = await parent.fork(2)
        await first.write_file("changed", b"first")
        (grandchild,) = await first.fork(1)
        assert await second.read_file("changed") == b"after"
        assert await grandchild.read_file("changed") == b"first"
        assert await grandchild.read_file("kept") == b"parent"
        assert await parent.read_file("changed") == b"after"
        for sandbox in (early, first, second, grandchild):
            await sandbox.destroy()


async def refuses_unknown_snapshots(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """A snapshot that does not exist can never start."""
    image = SnapshotImage(id="no-such-snapshot")
    await raises(
        StartFailed if "snapshot" in provider.capabilities().images else SandboxUnsupported,
        provider.create(spec.changed(image=image)),
    )


async def finds_by_tags_and_destroys(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Lists those alive; destroyed by object or id they are gone, and destroying again is fine."""
    tag = {"contract": str(time.monotonic_ns())}
    first = await provider.create(spec.changed(tags={**tag, "n": "1"}))
    second = await provider.create(spec.changed(tags={**tag, "n": "2"}))
    assert {info.id for info in await provider.list(tag)} == {first.id, second.id}
    assert [info.id for info in await provider.list({**tag, "n": "2"})] == [second.id]
    await first.destroy()
    await first.destroy()
    assert [info.id for info in await provider.list(tag)] == [second.id]
    await provider.destroy(second.id)
    await provider.destroy(second.id)
    await provider.destroy("no-such-sandbox")
    assert not await provider.list(tag)
    for sandbox in (first, second):
        await raises(SandboxDied, sandbox.exec(shell("true")))
        await raises(SandboxDied, sandbox.read_file("x"))
        await raises(SandboxDied, sandbox.write_file("x", b""))


FILES: tuple[Clause, ...] = (
    describes_itself,
    keeps_files,
    refuses_files_typed,
    snapshots_and_forks,
    refuses_unknown_snapshots,
    finds_by_tags_and_destroys,
)
"""Clauses that need no commands."""
