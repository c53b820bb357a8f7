"""`RemoteSandbox`: the protocol on top of a shell and files somewhere else."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from types import TracebackType
from typing import Literal, Self

from training_gym.sandboxes.remote import scripts
from training_gym.sandboxes.remote.execution import Execution
from training_gym.sandboxes.remote.machine import Machine
from training_gym.sandboxes.remote.shell import SHORT_S, Shell
from training_gym.spec.sandboxes import (
    MIB,
    ExecRequest,
    ExecResult,
    HostService,
    Output,
    Sandbox,
    SandboxFileError,
    SandboxProcess,
    SandboxProvider,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
    StartFailed,
    Stream,
)

_POLL_S = 0.3
_UPLOAD_BYTES = 4 << 20


async def open_remote(
    machine: Machine, spec: SandboxSpec, provider: SandboxProvider
) -> RemoteSandbox:
    """Prepare a machine; on failure it is destroyed."""
    token = secrets.token_hex(6)
    try:
        ready = await machine.run(
            scripts.prepare(token, spec, root=machine.root), timeout_s=SHORT_S
        )
        if ready.exit_code == 3:
            raise StartFailed(
                "the image has no setpriv, which commands of an ordinary user need",
                fix="install util-linux in it, or set user='root' in the spec",
            )
        if ready.exit_code:
            raise StartFailed(
                f"the image has no usable shell and /tmp (exit code {ready.exit_code})",
                fix="use an image with a POSIX shell and coreutils",
            )
    except BaseException:
        await asyncio.shield(machine.end())
        raise
    return RemoteSandbox(machine, spec, provider, token, ready.output.strip())


class RemoteSandbox:
    """One remote sandbox. Commands run one after another."""

    tier = "remote"

    def __init__(
        self,
        machine: Machine,
        spec: SandboxSpec,
        provider: SandboxProvider,
        token: str,
        workspace: str,
    ) -> None:
        """Made by `open_remote`."""
        self._machine = machine
        self._spec = spec
        self._provider = provider
        self._shell = Shell(machine, token)
        self._workspace = workspace
        self._turn = asyncio.Lock()

    @property
    def id(self) -> str:
        """The provider's id."""
        return self._machine.id

    @property
    def spec(self) -> SandboxSpec:
        """What it was created from."""
        return self._spec

    @property
    def workspace(self) -> str:
        """`/workspace`, or below the home where that cannot be made."""
        return self._workspace

    async def exec(self, request: ExecRequest) -> ExecResult:
        """Run a command to its end. Cancelling the call kills it."""
        execution = self._execution()
        async with self._turn:
            result = await self._run(execution, request, keep=request.max_output_bytes)
            await execution.forget()
            return result

    async def stream(self, request: ExecRequest) -> AsyncIterator[Output | ExecResult]:
        """Run a command; what it writes comes a few times a second."""
        execution = self._execution()
        sent: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        async with self._turn:
            quiet = request.changed(max_output_bytes=1)
            running = asyncio.create_task(self._run(execution, quiet, keep=0))
            try:
                while True:
                    ended = running.done()
                    for name in sent:
                        room = request.max_output_bytes - sent[name]
                        async for data in execution.pieces(name, sent[name], room):
                            sent[name] += len(data)
                            yield Output(stream=name, data=data)
                    if ended:
                        break
                    await asyncio.wait({running}, timeout=_POLL_S)
                yield (await running).changed(stdout=b"", stderr=b"")
            finally:
                if not running.done():
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                await execution.forget()

    async def start(self, request: ExecRequest) -> SandboxProcess:
        """Not offered."""
        raise self._unsupported("commands in the background", "run it with `exec` or `stream`")

    async def read_file(self, path: str, *, max_bytes: int = 100 * MIB) -> bytes:
        """A regular file's content."""
        return b"".join([data async for data in self.read_chunks(path, max_bytes=max_bytes)])

    async def read_chunks(self, path: str, *, max_bytes: int = 1024 * MIB) -> AsyncIterator[bytes]:
        """The same in pieces."""
        full = self._absolute(path)
        found = await self._shell.run(scripts.measure(full))
        if found.exit_code:
            why = {4: "is not there", 5: "is no regular file"}.get(found.exit_code, "is unreadable")
            raise SandboxFileError(f"{path!r} {why}", fix="check the path")
        size = int(found.output)
        if size > max_bytes:
            raise SandboxFileError(
                f"{path!r} has {size} bytes, {max_bytes} are allowed", fix="raise max_bytes"
            )
        async for data in self._shell.pieces(full, 0, size):
            yield data

    async def write_file(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int = 0o644
    ) -> None:
        """Write a file as the sandbox's user, folders above it included."""
        target = self._absolute(path)
        append = False
        async for part in _parts(data):
            source = self._shell.new_upload()
            await self._shell.put(source, part)
            placed = await self._shell.run(
                scripts.place(
                    source, target, mode, self._spec.user, root=self._shell.root, append=append
                )
            )
            if placed.exit_code:
                raise SandboxFileError(
                    f"{path!r} cannot be written: exit code {placed.exit_code}",
                    fix="write below the workspace, within disk_mb",
                )
            append = True

    async def snapshot(self, kind: Literal["files", "memory"] = "files") -> Snapshot:
        """Freeze its state at the provider."""
        self._shell.check_alive()
        if kind not in self._provider.capabilities().snapshots:
            raise self._unsupported(f"snapshots of {kind}", "see its capabilities")
        return Snapshot(
            id=await self._machine.snapshot(kind), provider=self._provider.name, kind=kind
        )

    async def fork(self, n: int = 1) -> Sequence[Sandbox]:
        """`n` new ones from a snapshot of the files, which is deleted again."""
        snapshot = await self.snapshot()
        spec = self._spec.changed(image=snapshot.image)
        forks: list[Sandbox] = []
        try:
            for _ in range(n):
                forks.append(await self._provider.create(spec))
        except BaseException:
            await asyncio.gather(*(fork.destroy() for fork in forks), return_exceptions=True)
            raise
        finally:
            await self._provider.delete_snapshot(snapshot.id)
        return forks

    async def connect(self, service: HostService) -> str:
        """Not offered."""
        raise self._unsupported(
            "a tunnel to a host's service", "publish the service, allow its host"
        )

    async def destroy(self) -> None:
        """End it at the provider."""
        await self._shell.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.destroy()

    def _execution(self) -> Execution:
        return Execution(self._shell, self._spec, self._workspace)

    async def _run(self, execution: Execution, request: ExecRequest, *, keep: int) -> ExecResult:
        user = request.user or self._spec.user
        if user not in self._provider.capabilities().users:
            raise self._unsupported(f"commands as {user!r}", "use the sandbox's own user")
        return await execution.run(request, user=user, tier=self.tier, keep=keep)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._workspace, path))

    def _unsupported(self, what: str, fix: str) -> SandboxUnsupported:
        return SandboxUnsupported(f"{self._provider.name} does not offer {what}", fix=fix)


async def _parts(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """At least one; small pieces together, because each takes a round trip of its own."""
    if isinstance(data, bytes):
        yield data
        return
    gathered, is_first = bytearray(), True
    async for part in data:
        gathered += part
        if len(gathered) >= _UPLOAD_BYTES:
            yield bytes(gathered)
            gathered.clear()
            is_first = False
    if gathered or is_first:
        yield bytes(gathered)
