"""One command in a remote sandbox: the script that runs it, the files that it writes into."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

from training_gym.sandboxes.remote import scripts
from training_gym.sandboxes.remote.shell import Shell
from training_gym.spec.sandboxes import (
    ExecRequest,
    ExecResult,
    Failure,
    SandboxDied,
    SandboxError,
    SandboxSpec,
    Stream,
)

_ON_TOP_S = 30.0  # for the round trip, beyond a command's own time


class Execution:
    """A command and its folder."""

    def __init__(self, shell: Shell, spec: SandboxSpec, workspace: str) -> None:
        """Nothing is sent before `run`."""
        self._shell = shell
        self._spec = spec
        self._workspace = workspace
        self._folder = shell.new_folder()

    async def run(self, request: ExecRequest, *, user: str, tier: str, keep: int) -> ExecResult:
        """To its end, with the first `keep` bytes of each output. Cancelling the call kills it."""
        if request.stdin:
            await self._shell.run(f"mkdir -p {self._folder}")
            await self._shell.put(f"{self._folder}/in", request.stdin)
        done = await self._finish(request, user)
        stdout = await self._rest("stdout", done.stdout, min(keep, done.stdout_bytes))
        stderr = await self._rest("stderr", done.stderr, min(keep, done.stderr_bytes))
        return ExecResult(
            exit_code=done.exit_code,
            stdout=stdout,
            stderr=stderr,
            stdout_bytes=done.stdout_bytes,
            stderr_bytes=done.stderr_bytes,
            failure=cast("Failure", done.failure) if done.failure else None,
            duration_s=done.duration_s,
            tier=tier,
        )

    def pieces(self, stream: Stream, offset: int, size: int) -> AsyncIterator[bytes]:
        """So many bytes of an output, or what was written of them so far."""
        return self._shell.pieces(f"{self._folder}/{stream.removeprefix('std')}", offset, size)

    async def forget(self) -> None:
        """Remove its files."""
        await self._shell.run(scripts.forget(self._folder))

    async def _finish(self, request: ExecRequest, user: str) -> scripts.Finished:
        script = scripts.execute(
            self._folder,
            request,
            self._spec,
            workspace=self._workspace,
            user=user,
            root=self._shell.root,
        )
        try:
            ran = await self._shell.run(script, timeout_s=request.timeout_s + _ON_TOP_S)
        except asyncio.CancelledError:
            await asyncio.shield(self._kill())
            raise
        try:
            return scripts.finished(ran.output)
        except ValueError:
            raise SandboxDied(
                f"sandbox {self._shell.id} answered {ran.output[:80]!r}", fix="use a fresh one"
            ) from None

    async def _rest(self, stream: Stream, begun: bytes, wanted: int) -> bytes:
        rest = self.pieces(stream, len(begun), wanted - len(begun))
        return b"".join([begun, *[data async for data in rest]])

    async def _kill(self) -> None:
        with contextlib.suppress(SandboxError):  # gone, and the command with it
            await self._shell.run(scripts.kill(self._folder))
