"""The commands of one sandbox: in turn, or in the background, each an `Execution`."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import signal
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from training_gym.sandboxes.zygote.background import LocalProcess
from training_gym.sandboxes.zygote.execution import Execution
from training_gym.sandboxes.zygote.life import Life
from training_gym.sandboxes.zygote.link import Link
from training_gym.sandboxes.zygote.parts import Parts
from training_gym.spec.sandboxes import (
    ExecRequest,
    ExecResult,
    Output,
    SandboxDied,
    SandboxError,
    SandboxSpec,
    SandboxUnsupported,
)


class Commands:
    """What is run by process 1, from the host's side."""

    def __init__(self, link: Link, life: Life, parts: Parts, spec: SandboxSpec, tier: str) -> None:
        """None run yet."""
        self._link = link
        self._life = life
        self._parts = parts
        self._spec = spec
        self._tier = tier
        self._turn = asyncio.Lock()
        self._executions: dict[int, Execution] = {}
        self._env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root" if spec.user == "root" else parts.workspace,
            "LANG": "C.UTF-8",
            "USER": spec.user,
            **parts.env,
            **spec.env,
        }

    def add_environment(self, names: Mapping[str, str]) -> None:
        """For all later commands; what the spec sets stays."""
        self._env = {**names, **self._env}

    async def exec(self, request: ExecRequest) -> ExecResult:
        """Run one to its end, when its turn comes."""
        async with self._turn:
            execution = self._begin(request, request.stdin)
            async with self._ending(execution):
                return await execution.result()

    async def stream(self, request: ExecRequest) -> AsyncIterator[Output | ExecResult]:
        """The same, with what it writes as it comes."""
        async with self._turn:
            execution = self._begin(request, request.stdin)
            async with self._ending(execution):
                async with contextlib.aclosing(execution.pieces()) as pieces:
                    async for piece in pieces:
                        yield piece
                yield await execution.result()

    async def start(self, request: ExecRequest) -> LocalProcess:
        """Begin one that goes on while others run."""
        if "proc" in self._parts.missing:
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

    async def write(self, path: str, data: bytes | AsyncIterable[bytes], mode: int) -> ExecResult:
        """Have a child of process 1 write a file: the host follows no path inside."""
        request = ExecRequest(argv=("write",), timeout_s=600.0, max_output_bytes=4096)
        # Beside commands that run: by /proc, what writes can be told from leftovers.
        turn = self._turn if "proc" in self._parts.missing else contextlib.nullcontext()
        async with turn:
            execution = self._begin(request, data, more={"write": path, "mode": mode})
            async with self._ending(execution):
                return await execution.result()

    def fail(self, error: SandboxError) -> None:
        """Process 1 is gone, and all of them with it."""
        for execution in list(self._executions.values()):
            execution.fail(error)
        self._executions.clear()

    def _begin(
        self,
        request: ExecRequest,
        stdin: bytes | AsyncIterable[bytes] | None,
        *,
        background: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> Execution:
        self._life.check()
        if request.user not in ("", self._spec.user):
            raise SandboxUnsupported(
                f"commands of this sandbox run as {self._spec.user!r}, not as {request.user!r}",
                fix="create the sandbox with that user",
            )
        channel = self._link.new_channel()
        kills_before = self._life.oom_kills()

        def describe(told: dict[str, Any], stdout: bytes, stderr: bytes) -> ExecResult:
            self._executions.pop(channel, None)
            killed = self._life.oom_kills() > kills_before
            return self._describe(told, stdout, stderr, ran_out_of_memory=killed)

        execution = Execution(self._link, channel, request, describe)
        self._executions[channel] = execution
        execution.begin(
            {
                "argv": list(request.argv),
                "code": request.code,
                "warm": self._parts.warm,
                "env": {**self._env, **request.env},
                "cwd": posixpath.join(self._parts.workspace, request.cwd),
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
            await self._life.end()
            raise
        finally:
            if not execution.is_over and not self._life.is_over:
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
            why = "an earlier command left a process that could not be ended"
            self._life.condemn(SandboxDied(why, fix="use a fresh sandbox"))
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
            tier=self._tier,
        )
