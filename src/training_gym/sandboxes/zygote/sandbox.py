"""One living sandbox of the zygote."""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from training_gym.sandboxes.zygote import files
from training_gym.sandboxes.zygote.background import LocalProcess
from training_gym.sandboxes.zygote.commands import Commands
from training_gym.sandboxes.zygote.life import Life
from training_gym.sandboxes.zygote.link import Link
from training_gym.sandboxes.zygote.parts import Parts
from training_gym.sandboxes.zygote.tunnel import Dial, Tunnel, dial
from training_gym.spec.sandboxes import (
    MIB,
    ExecRequest,
    ExecResult,
    HostService,
    Network,
    Output,
    SandboxError,
    SandboxFileError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
)


class Owner(Protocol):
    """What a sandbox needs of the provider that made it."""

    def oom_kills(self, sandbox: LocalSandbox) -> int:
        """Processes of it that were killed for lack of memory."""
        ...

    def ended(self, sandbox: LocalSandbox) -> None:
        """All its processes are gone."""
        ...

    async def take_snapshot(self, sandbox: LocalSandbox) -> Snapshot:
        """Freeze its files."""
        ...

    async def create_from(self, spec: SandboxSpec, snapshot: Snapshot) -> LocalSandbox:
        """A new sandbox that starts from a snapshot."""
        ...

    async def discard(self, snapshot: Snapshot) -> None:
        """Nothing will start from it any more."""
        ...


class LocalSandbox:
    """Talks to process 1 over a socket; reads its files through a descriptor of its root."""

    def __init__(
        self, owner: Owner, sandbox_id: str, spec: SandboxSpec, tier: str, parts: Parts
    ) -> None:
        """Made by a provider, then `attach`ed."""
        self._owner = owner
        self.id = sandbox_id
        self.spec = spec
        self.tier = tier
        self.parts = parts
        self.workspace = parts.workspace
        self.pid = parts.pid()
        self._created_at = time.time()
        self._life = Life(sandbox_id, parts, lambda: owner.oom_kills(self))
        self._tunnel: Tunnel | None = None

    def attach(self) -> None:
        """Begin to listen to it."""
        # Where process 1 hangs up, it ends, or is not ours any more.
        self._link = Link(self.parts.link, self._life.kill)
        self._commands = Commands(self._link, self._life, self.parts, self.spec, self.tier)
        self._life.watch(self._ended)

    @property
    def info(self) -> SandboxInfo:
        """What `SandboxProvider.list` tells."""
        return SandboxInfo(
            id=self.id, tags=self.spec.tags, created_at=self._created_at, tier=self.tier
        )

    # ------------------------------------------------------------ commands

    async def exec(self, request: ExecRequest) -> ExecResult:
        """Part of `Sandbox`."""
        return await self._commands.exec(request)

    def stream(self, request: ExecRequest) -> AsyncIterator[Output | ExecResult]:
        """Part of `Sandbox`."""
        return self._commands.stream(request)

    async def start(self, request: ExecRequest) -> LocalProcess:
        """Part of `Sandbox`."""
        return await self._commands.start(request)

    def add_environment(self, names: Mapping[str, str]) -> None:
        """For all later commands; what the spec sets stays."""
        self._commands.add_environment(names)

    # ------------------------------------------------------------ files

    async def read_file(self, path: str, *, max_bytes: int = 100 * MIB) -> bytes:
        """Part of `Sandbox`."""
        self._life.check()
        return await files.read_file(self.parts.root, self._below_root(path), max_bytes)

    async def read_chunks(self, path: str, *, max_bytes: int = 1024 * MIB) -> AsyncIterator[bytes]:
        """Part of `Sandbox`."""
        self._life.check()
        async with contextlib.aclosing(
            files.read_chunks(self.parts.root, self._below_root(path), max_bytes)
        ) as chunks:
            async for chunk in chunks:
                yield chunk

    async def write_file(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int = 0o644
    ) -> None:
        """Part of `Sandbox`."""
        result = await self._commands.write(self._absolute(path), data, mode)
        if not result.ok:
            raise SandboxFileError(
                f"{path!r} cannot be written: {result.error_text.strip() or result.failure}",
                fix="check the path and resources.disk_mb",
            )

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.workspace, path)

    def _below_root(self, path: str) -> str:
        """A path as seen from the descriptor that files are read through."""
        absolute = posixpath.normpath(self._absolute(path))
        root = self.parts.root_path
        if root != "/" and absolute != root and not absolute.startswith(root + "/"):
            raise SandboxFileError(
                f"{path!r} is not a file of the sandbox", fix=f"read files below {root}"
            )
        return absolute.removeprefix(root).lstrip("/")

    # ------------------------------------------------------------ states

    async def snapshot(self, kind: Literal["files", "memory"] = "files") -> Snapshot:
        """Part of `Sandbox`."""
        self._life.check()
        if kind == "memory":
            raise SandboxUnsupported(
                "the memory of local sandboxes cannot be frozen", fix="use kind='files'"
            )
        return await self._owner.take_snapshot(self)

    async def fork(self, n: int = 1) -> Sequence[LocalSandbox]:
        """Part of `Sandbox`."""
        snapshot = await self.snapshot()
        made: list[LocalSandbox] = []
        try:
            for _ in range(n):
                made.append(await self._owner.create_from(self.spec, snapshot))
        except BaseException:
            for sandbox in made:
                await sandbox.destroy()
            raise
        finally:
            await self._owner.discard(snapshot)
        return made

    async def connect(self, service: HostService) -> str:
        """Part of `Sandbox`."""
        self._life.check()
        if not self.parts.can_connect:
            raise SandboxUnsupported(
                f"tier {self.tier} has no loopback of its own to open a service on",
                fix="use a tier with namespaces, or pass the service's answers through files",
            )
        return await self.open_port(0, dial(service))

    async def open_port(self, port: int, reach: Dial) -> str:
        """Let connections to a port inside (0: any) reach what `reach` connects to."""
        if self._tunnel is None:
            self._tunnel = Tunnel(self._link)
        return await self._tunnel.open(reach, self._link.new_channel(), port)

    @property
    def network(self) -> Network:
        """What it may reach."""
        return self.spec.network

    # ------------------------------------------------------------ the end

    async def destroy(self) -> None:
        """Part of `Sandbox`."""
        await self._life.end()

    def kill(self, why: SandboxError | None = None) -> None:
        """End process 1, and with it all others; does not wait."""
        self._life.kill(why)

    def _ended(self, why: SandboxError) -> None:
        self._commands.fail(why)
        if self._tunnel is not None:
            self._tunnel.close()
        self._link.close()
        self._owner.ended(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.destroy()
