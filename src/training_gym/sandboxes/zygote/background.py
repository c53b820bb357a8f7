"""A command that goes on while others run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from training_gym.sandboxes.zygote.execution import Execution
from training_gym.spec.sandboxes import ExecResult, Output


class LocalProcess:
    """A background command."""

    def __init__(self, execution: Execution) -> None:
        """Made by `LocalSandbox.start`."""
        self._execution = execution
        self._result: asyncio.Future[ExecResult] | None = None

    def output(self) -> AsyncIterator[Output]:
        """Part of `SandboxProcess`."""
        self._execution.divert()
        return self._execution.pieces()

    async def write(self, data: bytes) -> None:
        """Part of `SandboxProcess`."""
        await self._execution.write(data)

    async def wait(self) -> ExecResult:
        """Part of `SandboxProcess`."""
        if self._result is None:
            self._result = asyncio.ensure_future(self._execution.result())
        return await asyncio.shield(self._result)

    async def kill(self) -> ExecResult:
        """Part of `SandboxProcess`."""
        self._execution.kill()
        return await self.wait()
