"""`FakeProvider`: sandboxes only in memory, with latency, failures and quotas at will."""

from __future__ import annotations

import asyncio
import itertools
import posixpath
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Literal, Self

from training_gym.spec.sandboxes import (
    MIB,
    ExecRequest,
    ExecResult,
    HostService,
    Output,
    QuotaExceeded,
    RateLimited,
    SandboxCapabilities,
    SandboxDied,
    SandboxError,
    SandboxFileError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
    SnapshotImage,
    StartFailed,
    StartTimeout,
    TierReport,
)

Commands = Callable[["FakeSandbox", ExecRequest], Awaitable[ExecResult]]


async def succeed(sandbox: FakeSandbox, request: ExecRequest) -> ExecResult:
    """Every command exits with 0 and echoes its stdin."""
    return ExecResult(
        exit_code=0, stdout=request.stdin, stdout_bytes=len(request.stdin), tier=sandbox.tier
    )


class FakeProvider:
    """A provider for tests of pools, graders and environments: no process is ever started."""

    name = "fake"

    def __init__(
        self,
        *,
        start_s: float | Callable[[], float] = 0.0,
        failures: Iterable[SandboxError | None] = (),
        max_concurrent: int | None = None,
        creates_per_s: float | None = None,
        commands: Commands = succeed,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What to imitate.

        Args:
            start_s: Seconds a creation takes, or a function drawing them.
            failures: For each creation in order the error it ends with, or None; then none.
            max_concurrent: More at once raise `QuotaExceeded`; those being started count.
            creates_per_s: More within a second raise `RateLimited`.
            commands: What a command does.
            sleep: Instead of `asyncio.sleep`.
            clock: Seconds, for the rate limit.
        """
        self._start_s = start_s if callable(start_s) else lambda: start_s
        self._failures = iter(failures)
        self._max_concurrent = max_concurrent
        self._creates_per_s = creates_per_s
        self.commands = commands
        self._sleep = sleep
        self._clock = clock
        self._numbers = itertools.count(1)
        self._recent: list[float] = []
        self.starting = 0
        """Creations under way."""
        self.created = 0
        """Creations that succeeded, ever."""
        self.alive: dict[str, FakeSandbox] = {}
        """By id."""
        self.snapshots: dict[str, dict[str, bytes]] = {}
        """Files by snapshot."""

    def capabilities(self) -> SandboxCapabilities:
        """Everything the memory allows."""
        return SandboxCapabilities(
            snapshots=("files",),
            images=("host", "folder", "oci", "dockerfile", "snapshot"),
            networks=("none", "allowlist", "public"),
            connect=True,
            users=("user", "root"),
            max_concurrent=self._max_concurrent,
            creates_per_s=self._creates_per_s,
        )

    async def probe(self) -> Sequence[TierReport]:
        """It works, and promises nothing."""
        return [
            TierReport(tier="fake", provider=self.name, works=True, limits=("nothing runs in it",))
        ]

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> FakeSandbox:
        """One more, or the failure that is due."""
        self._admit()
        self.starting += 1
        try:
            start_s = self._start_s()
            await self._sleep(min(start_s, timeout_s))
            if start_s > timeout_s:
                raise StartTimeout(
                    f"not ready after {timeout_s} s, it takes {start_s} s", fix="try again"
                )
            failure = next(self._failures, None)
            if failure is not None:
                raise failure
            files = self._files_of(spec)
        finally:
            self.starting -= 1
        sandbox = FakeSandbox(self, f"fake-{next(self._numbers)}", spec, files)
        self.alive[sandbox.id] = sandbox
        self.created += 1
        return sandbox

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Those alive that carry the tags."""
        wanted = dict(tags or {}).items()
        return [s.info for s in self.alive.values() if wanted <= s.spec.tags.items()]

    async def destroy(self, sandbox_id: str) -> None:
        """End one by id."""
        if sandbox_id in self.alive:
            await self.alive[sandbox_id].destroy()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Forget a snapshot."""
        self.snapshots.pop(snapshot_id, None)

    async def close(self) -> None:
        """End all."""
        self.alive.clear()
        self.snapshots.clear()

    def _admit(self) -> None:
        held = len(self.alive) + self.starting
        if self._max_concurrent is not None and held >= self._max_concurrent:
            raise QuotaExceeded(
                f"{held} sandboxes are held, {self._max_concurrent} allowed", fix="destroy some"
            )
        if self._creates_per_s is None:
            return
        now = self._clock()
        self._recent = [at for at in self._recent if at > now - 1]
        if len(self._recent) >= self._creates_per_s:
            raise RateLimited(
                f"more than {self._creates_per_s:g} creations in a second",
                fix="wait",
                retry_after_s=self._recent[0] + 1 - now,
            )
        self._recent.append(now)

    def _files_of(self, spec: SandboxSpec) -> dict[str, bytes]:
        if not isinstance(spec.image, SnapshotImage):
            return {}
        if spec.image.id not in self.snapshots:
            raise StartFailed(f"there is no snapshot {spec.image.id!r}", fix="take one first")
        return dict(self.snapshots[spec.image.id])


class FakeSandbox:
    """Files in a dictionary; commands are what the provider was told."""

    tier = "fake"
    workspace = "/workspace"

    def __init__(
        self, provider: FakeProvider, sandbox_id: str, spec: SandboxSpec, files: dict[str, bytes]
    ) -> None:
        """Made by `FakeProvider.create`."""
        self._provider = provider
        self.id = sandbox_id
        self.spec = spec
        self.files = files
        """Content by absolute path."""
        self.requests: list[ExecRequest] = []
        """Commands so far."""
        self.info = SandboxInfo(
            id=sandbox_id, tags=spec.tags, created_at=time.time(), tier=self.tier
        )

    def die(self) -> None:
        """As if its machine had vanished."""
        self._provider.alive.pop(self.id, None)

    async def exec(self, request: ExecRequest) -> ExecResult:
        """What the provider was told commands do."""
        self._check_alive()
        self.requests.append(request)
        result = await self._provider.commands(self, request)
        self._check_alive()
        return result

    async def stream(self, request: ExecRequest) -> AsyncIterator[Output | ExecResult]:
        """The same, in at most two pieces."""
        result = await self.exec(request)
        if result.stdout:
            yield Output(stream="stdout", data=result.stdout)
        if result.stderr:
            yield Output(stream="stderr", data=result.stderr)
        yield result.changed(stdout=b"", stderr=b"")

    async def start(self, request: ExecRequest) -> FakeProcess:
        """A command that ends when it is waited for or killed."""
        self._check_alive()
        return FakeProcess(self, request)

    async def read_file(self, path: str, *, max_bytes: int = 100 * MIB) -> bytes:
        """A file's content."""
        self._check_alive()
        data = self.files.get(self._absolute(path))
        if data is None:
            raise SandboxFileError(f"there is no file {path!r}", fix="check the path")
        if len(data) > max_bytes:
            raise SandboxFileError(
                f"{path!r} has {len(data)} bytes, {max_bytes} are allowed", fix="raise max_bytes"
            )
        return data

    async def read_chunks(self, path: str, *, max_bytes: int = 1024 * MIB) -> AsyncIterator[bytes]:
        """The same in pieces."""
        data = await self.read_file(path, max_bytes=max_bytes)
        for start in range(0, len(data), MIB):
            yield data[start : start + MIB]

    async def write_file(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int = 0o644
    ) -> None:
        """Keep a file."""
        self._check_alive()
        content = data if isinstance(data, bytes) else b"".join([part async for part in data])
        if len(content) > self.spec.resources.disk_mb * MIB:
            raise SandboxFileError(
                f"{path!r} needs {len(content)} bytes: no space left", fix="raise disk_mb"
            )
        self.files[self._absolute(path)] = content

    async def snapshot(self, kind: Literal["files", "memory"] = "files") -> Snapshot:
        """Its files as they are."""
        self._check_alive()
        if kind == "memory":
            raise SandboxUnsupported("the fake has no memory to freeze", fix="use kind='files'")
        snapshot_id = f"fake-snapshot-{next(self._provider._numbers)}"
        self._provider.snapshots[snapshot_id] = dict(self.files)
        size = sum(len(data) for data in self.files.values())
        return Snapshot(id=snapshot_id, provider=self._provider.name, size_bytes=size)

    async def fork(self, n: int = 1) -> Sequence[FakeSandbox]:
        """Others with the same files."""
        snapshot = await self.snapshot()
        spec = self.spec.changed(image=snapshot.image)
        return [await self._provider.create(spec) for _ in range(n)]

    async def connect(self, service: HostService) -> str:
        """An address, though nothing could use it."""
        self._check_alive()
        return "127.0.0.1:8000"

    async def destroy(self) -> None:
        """Gone."""
        self.die()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.destroy()

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.workspace, path))

    def _check_alive(self) -> None:
        if self.id not in self._provider.alive:
            raise SandboxDied(f"sandbox {self.id} is gone", fix="use a fresh one")


class FakeProcess:
    """A background command of the fake."""

    def __init__(self, sandbox: FakeSandbox, request: ExecRequest) -> None:
        """Made by `FakeSandbox.start`."""
        self._sandbox = sandbox
        self._request = request
        self.written = b""
        """What was sent to its stdin."""

    async def output(self) -> AsyncIterator[Output]:
        """What its result says it wrote."""
        result = await self.wait()
        for stream, data in (("stdout", result.stdout), ("stderr", result.stderr)):
            if data:
                yield Output.read({"stream": stream, "data": data})

    async def write(self, data: bytes) -> None:
        """Keep it."""
        self.written += data

    async def wait(self) -> ExecResult:
        """What the provider was told the command does."""
        return await self._sandbox.exec(self._request)

    async def kill(self) -> ExecResult:
        """Ended by a signal."""
        return ExecResult(exit_code=-9, tier=self._sandbox.tier)
