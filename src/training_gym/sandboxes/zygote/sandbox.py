"""One living sandbox of the zygote."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import posixpath
import signal
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from training_gym.sandboxes.zygote import files
from training_gym.sandboxes.zygote.background import LocalProcess
from training_gym.sandboxes.zygote.execution import Execution
from training_gym.sandboxes.zygote.link import Link
from training_gym.sandboxes.zygote.parts import Parts
from training_gym.sandboxes.zygote.tunnel import Dial, Tunnel, dial
from training_gym.spec.sandboxes import (
    MIB,
    ExecRequest,
    ExecResult,
    HostService,
    Network,
    OutOfMemory,
    Output,
    SandboxDied,
    SandboxError,
    SandboxFileError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
)

_UNKILLABLE_S = 10.0


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
        """Made by `LocalProvider.create`, then `attach`ed."""
        self._owner = owner
        self.id = sandbox_id
        self.spec = spec
        self.tier = tier
        self.parts = parts
        self.workspace = parts.workspace
        self.pid = parts.pid()
        self._created_at = time.time()
        self._has_files = True
        self._channels = itertools.count(1)
        self._turn = asyncio.Lock()
        self._executions: dict[int, Execution] = {}
        self._tunnel: Tunnel | None = None
        self._gone = asyncio.Event()
        self._why: SandboxError | None = None
        self._env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root" if spec.user == "root" else parts.workspace,
            "LANG": "C.UTF-8",
            "USER": spec.user,
            **parts.env,
            **spec.env,
        }

    def attach(self) -> None:
        """Begin to listen to it."""
        self._link = Link(self.parts.link, self._link_lost)
        asyncio.get_running_loop().add_reader(self.parts.handle, self._process_ended)

    @property
    def info(self) -> SandboxInfo:
        """What `SandboxProvider.list` tells."""
        return SandboxInfo(
            id=self.id, tags=self.spec.tags, created_at=self._created_at, tier=self.tier
        )

    # ------------------------------------------------------------ commands

    async def exec(self, request: ExecRequest) -> ExecResult:
        """Part of `Sandbox`."""
        async with self._turn:
            execution = self._begin(request, request.stdin)
            async with self._ending(execution):
                return await execution.result()

    async def stream(self, request: ExecRequest) -> AsyncIterator[Output | ExecResult]:
        """Part of `Sandbox`."""
        async with self._turn:
            execution = self._begin(request, request.stdin)
            async with self._ending(execution):
                async with contextlib.aclosing(execution.pieces()) as pieces:
                    async for piece in pieces:
                        yield piece
                yield await execution.result()

    async def start(self, request: ExecRequest) -> LocalProcess:
        """Part of `Sandbox`."""
        if "proc" in self.parts.missing:
            raise SandboxUnsupported(
                "background commands need /proc, which cannot be mounted here (tier B2)",
                fix="run it in the foreground, or unmask /proc in the container around",
            )
        stdin = request.stdin or None
        execution = self._begin(request, None, background=True)
        process = LocalProcess(execution)
        if stdin is not None:
            await process.write(stdin)
        return process

    def add_environment(self, names: Mapping[str, str]) -> None:
        """For all later commands; what the spec sets stays."""
        self._env = {**names, **self._env}

    def _begin(
        self,
        request: ExecRequest,
        stdin: bytes | AsyncIterable[bytes] | None,
        *,
        background: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> Execution:
        self._check()
        if request.user not in ("", self.spec.user):
            raise SandboxUnsupported(
                f"commands of this sandbox run as {self.spec.user!r}, not as {request.user!r}",
                fix="create the sandbox with that user",
            )
        channel = next(self._channels)
        kills_before = self._owner.oom_kills(self)

        def describe(told: dict[str, Any], stdout: bytes, stderr: bytes) -> ExecResult:
            self._executions.pop(channel, None)
            killed = self._owner.oom_kills(self) > kills_before
            return self._describe(told, stdout, stderr, ran_out_of_memory=killed)

        execution = Execution(self._link, channel, request, describe)
        self._executions[channel] = execution
        execution.begin(
            {
                "argv": list(request.argv),
                "code": request.code,
                "warm": self.parts.warm,
                "env": {**self._env, **request.env},
                "cwd": self._absolute(request.cwd),
                "background": background,
                **(more or {}),
            },
            stdin,
        )
        return execution

    @contextlib.asynccontextmanager
    async def _ending(self, execution: Execution) -> AsyncIterator[None]:
        """Whatever happens, the command is over before the next one's turn."""
        try:
            yield
        except SandboxDied:
            await self._destroy_because(self._why)
            raise
        finally:
            if not execution.is_over and not self._gone.is_set():
                execution.kill()
                with contextlib.suppress(SandboxError):
                    await asyncio.shield(execution.result())

    def _describe(
        self, told: dict[str, Any], stdout: bytes, stderr: bytes, *, ran_out_of_memory: bool
    ) -> ExecResult:
        if "error" in told:
            raise SandboxDied(f"process 1 failed: {told['error']}", fix="use a fresh sandbox")
        failure = told["failure"]
        if failure is None and told["code"] in (-signal.SIGKILL, 137) and ran_out_of_memory:
            failure = "out_of_memory"
        if not told["clean"]:
            self._why = SandboxDied(
                "an earlier command left a process that could not be ended",
                fix="use a fresh sandbox",
            )
        return ExecResult(
            exit_code=told["code"],
            stdout=stdout,
            stderr=stderr,
            stdout_bytes=told["stdout_bytes"],
            stderr_bytes=told["stderr_bytes"],
            failure=failure,
            duration_s=told["duration_s"],
            cpu_s=told["cpu_s"],
            peak_memory_mb=told["peak_memory_mb"],
            leftovers=told["leftovers"],
            clean=told["clean"],
            tier=self.tier,
        )

    # ------------------------------------------------------------ files

    async def read_file(self, path: str, *, max_bytes: int = 100 * MIB) -> bytes:
        """Part of `Sandbox`."""
        self._check()
        return await files.read_file(self.parts.root, self._below_root(path), max_bytes)

    async def read_chunks(self, path: str, *, max_bytes: int = 1024 * MIB) -> AsyncIterator[bytes]:
        """Part of `Sandbox`."""
        self._check()
        async with contextlib.aclosing(
            files.read_chunks(self.parts.root, self._below_root(path), max_bytes)
        ) as chunks:
            async for chunk in chunks:
                yield chunk

    async def write_file(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int = 0o644
    ) -> None:
        """Part of `Sandbox`. A child of process 1 writes it: the host follows no path inside."""
        request = ExecRequest(argv=("write",), timeout_s=600.0, max_output_bytes=4096)
        more = {"write": self._absolute(path), "mode": mode}
        # Beside commands that run: by /proc, what writes can be told from leftovers.
        turn = self._turn if "proc" in self.parts.missing else contextlib.nullcontext()
        async with turn:
            execution = self._begin(request, data, more=more)
            async with self._ending(execution):
                result = await execution.result()
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
        self._check()
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
        self._check()
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
        return await self._tunnel.open(reach, next(self._channels), port)

    @property
    def network(self) -> Network:
        """What it may reach."""
        return self.spec.network

    # ------------------------------------------------------------ the end

    async def destroy(self) -> None:
        """Part of `Sandbox`."""
        await self._destroy_because(None)

    async def _destroy_because(self, why: SandboxError | None) -> None:
        if self._gone.is_set():
            return
        self.kill(why or self._why or self._dead())
        try:
            await asyncio.wait_for(self._gone.wait(), _UNKILLABLE_S)
        except TimeoutError:
            raise SandboxDied(
                f"process 1 of sandbox {self.id} cannot be ended",
                fix="it hangs in the kernel: restart the machine if it stays",
            ) from None

    def kill(self, why: SandboxError | None = None) -> None:
        """End process 1, and with it all others; does not wait."""
        self._why = why or self._why
        if not self._gone.is_set():
            self._close_files()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.parts.handle, signal.SIGKILL)

    def _process_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self.parts.handle)
        if self._why is None and self._owner.oom_kills(self):
            self._why = OutOfMemory(
                f"sandbox {self.id} was ended for lack of memory",
                fix="raise resources.memory_mb if it deserves more",
            )
        error = self._why or self._dead()
        self._gone.set()
        for execution in list(self._executions.values()):
            execution.fail(error)
        self._executions.clear()
        if self._tunnel is not None:
            self._tunnel.close()
        self._link.close()
        self._close_files()
        os.close(self.parts.handle)
        self._owner.ended(self)

    def _close_files(self) -> None:
        """Before its processes end: the last to hold a tree takes it apart, and we have no time."""
        if self._has_files:
            self._has_files = False
            os.close(self.parts.root)
            os.close(self.parts.state)

    def _link_lost(self) -> None:
        """Process 1 hung up: it ends, or is not ours any more."""
        if not self._gone.is_set():
            self.kill()

    def _check(self) -> None:
        if self._why is not None or self._gone.is_set():
            raise self._why or self._dead()

    def _dead(self) -> SandboxDied:
        return SandboxDied(f"sandbox {self.id} is gone", fix="use a fresh one")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.destroy()
