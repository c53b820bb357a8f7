"""`FakeSandbox`: files in a dictionary, and commands that its provider answers."""

from __future__ import annotations

import posixpath
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from training_gym.spec.sandboxes import (
    MIB,
    ExecRequest,
    ExecResult,
    HostService,
    Output,
    SandboxDied,
    SandboxFileError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
)

if TYPE_CHECKING:
    from training_gym.testing.fake_sandboxes import FakeProvider


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
        snapshot_id = self._provider.keep(self.files)
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
