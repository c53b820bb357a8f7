"""`RemoteSandbox` keeps the contract, its shell being that of a real local sandbox."""

from __future__ import annotations

import asyncio

import pytest

from training_gym.sandboxes.remote.machine import ShellResult, check_spec, refusal
from training_gym.sandboxes.remote.sandbox import open_remote
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import (
    ExecRequest,
    Mount,
    Network,
    QuotaExceeded,
    RateLimited,
    SandboxCapabilities,
    SandboxSpec,
    SandboxUnsupported,
    StartFailed,
    TierReport,
)
from training_gym.testing.sandbox_contract import CLAUSES, try_clause


class ShellMachine:
    """A machine whose shell is a sandbox of the zygote: commands beside each other, no more."""

    root = False

    def __init__(self, inner, cloud):
        self.inner, self.cloud = inner, cloud
        self.id = inner.id

    async def run(self, script, *, timeout_s):
        request = ExecRequest(argv=("sh", "-c", script), timeout_s=timeout_s)
        process = await self.inner.start(request)
        output = b""
        async for event in process.output():
            if event.stream == "stdout":
                output += event.data
        return ShellResult((await process.wait()).exit_code, output.decode())

    async def put(self, path, data):
        await self.inner.write_file(path, data)

    async def snapshot(self, kind):
        made = await self.inner.snapshot()
        self.cloud.snapshots.add(made.id)
        return made.id

    async def end(self):
        self.cloud.ended.add(self.id)
        await self.inner.destroy()


class Cloud:
    """Sandboxes of the zygote as if they were far away."""

    name = "cloud"

    def __init__(self):
        self.zygote = ZygoteProvider()
        self.snapshots, self.ended = set(), set()

    def capabilities(self):
        return SandboxCapabilities(
            snapshots=("files",), images=("host", "snapshot"), users=("user",), remote=True
        )

    async def probe(self):
        return [TierReport(tier="remote", provider=self.name, works=True)]

    async def create(self, spec, *, timeout_s=60.0):
        check_spec(self.name, spec)
        inner = await self.zygote.create(spec, timeout_s=timeout_s)
        return await open_remote(ShellMachine(inner, self), spec, self)

    async def list(self, tags=None):
        return await self.zygote.list(tags)

    async def destroy(self, sandbox_id):
        await self.zygote.destroy(sandbox_id)

    async def delete_snapshot(self, snapshot_id):
        await self.zygote.delete_snapshot(snapshot_id)

    async def close(self):
        await self.zygote.close()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_contract(clause):
    try_clause(clause, Cloud)


def test_outputs_larger_than_a_message_come_whole():
    async def main():
        cloud = Cloud()
        try:
            async with await cloud.create(SandboxSpec()) as sandbox:
                script = "yes 0123456789 | head -c 300000; yes err | head -c 100000 >&2"
                return await sandbox.exec(ExecRequest(argv=("sh", "-c", script)))
        finally:
            await cloud.close()

    result = asyncio.run(main())
    assert result.stdout == (b"0123456789\n" * 30_000)[:300_000]
    assert result.stderr == (b"err\n" * 30_000)[:100_000]


def test_a_machine_that_cannot_be_prepared_is_destroyed():
    async def main():
        cloud = Cloud()
        inner = await cloud.zygote.create(SandboxSpec())
        machine = ShellMachine(inner, cloud)

        async def broken(script, *, timeout_s):
            return ShellResult(1, "")

        machine.run = broken
        try:
            with pytest.raises(StartFailed, match="no usable shell"):
                await open_remote(machine, SandboxSpec(), cloud)
            assert cloud.ended == {machine.id}
        finally:
            await cloud.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Total CPU limit exceeded. Maximum allowed: 10.", QuotaExceeded),
        ("You have reached the maximum number of concurrent E2B sandboxes (20)", QuotaExceeded),
        ("429: Rate limit exceeded, please try again later.", RateLimited),
        ("Too many requests", RateLimited),
        ("You are being rate limited", RateLimited),
        ("Organization quota for memory is used up", QuotaExceeded),
        ("no available runners in region us", QuotaExceeded),
        ("internal server error", None),
    ],
)
def test_refusals_are_told_by_their_text(text, kind):
    found = refusal("somewhere", text)
    assert type(found) is (kind or type(None))


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(mounts=(Mount(source="/data", target="/data"),)),
        SandboxSpec(network=Network(mode="allowlist", allowed_hosts=("example.org:443",))),
    ],
)
def test_what_no_remote_provider_can_give_is_refused(spec):
    with pytest.raises(SandboxUnsupported):
        check_spec("somewhere", spec)
