"""The host's side of a submission that answers calls from its own sandbox.

Every line that comes back is data written by code that may want to be believed. It is read as an
answer to one question and as nothing else.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

from training_gym.rewards.graders.bundle import bundle
from training_gym.rewards.graders.verdict import Tampering
from training_gym.spec.sandboxes import (
    MIB,
    ExecRequest,
    ExecResult,
    Output,
    Sandbox,
    SandboxProcess,
)

LONGEST_LINE = 16 * MIB


class Gone(Exception):
    """The submission's process ended, hung or broke the protocol; says which."""


class CalleeProcess:
    """One process in which the submission runs."""

    def __init__(self, sandbox: Sandbox, process: SandboxProcess, key: str) -> None:
        """Made by `start_callee`."""
        self._sandbox = sandbox
        self._process = process
        self._key = key
        self._pieces: AsyncIterator[Output] = process.output()
        self._buffer = bytearray()
        self._gone: str | None = None
        self.tampering: list[Tampering] = []
        self.stderr = bytearray()
        self._number = 0

    async def send(self, message: dict[str, Any]) -> None:
        """One request."""
        if self._gone is not None:
            raise Gone(self._gone)
        if self._buffer:
            self._sign("forged_frame", f"wrote unasked: {bytes(self._buffer[:60])!r}")
            self._buffer.clear()
        self._number += 1
        await self._process.write(json.dumps({**message, "n": self._number}).encode() + b"\n")

    async def receive(self, timeout_s: float) -> dict[str, Any]:
        """The answer; raises `Gone`."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    answer = self._understood(await self._line())
                    if answer is not None:
                        return answer
        except TimeoutError:
            await self.end(f"took longer than {timeout_s:g} s")
            raise Gone(self._gone or "") from None

    async def end(self, why: str = "was ended") -> ExecResult:
        """Kill it and look at what it left."""
        if self._gone is None:
            self._gone = why
            if self._buffer:
                self._sign("forged_frame", f"wrote unasked: {bytes(self._buffer[:60])!r}")
            await self._process.kill()
        return await self._process.wait()

    async def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            piece = await anext(self._pieces, None)
            if piece is None:
                await self._ended()
            elif piece.stream == "stderr":
                self.stderr += piece.data[: MIB - len(self.stderr)]
            else:
                self._buffer += piece.data
            if len(self._buffer) > LONGEST_LINE:
                await self.end("answered more than 16 MiB")
                raise Gone(self._gone or "")
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    async def _ended(self) -> None:
        result = await self._process.wait()
        self._gone = f"ended with exit code {result.exit_code}"
        if result.failure is not None:
            self._gone = f"was ended: {result.failure}"
        elif result.exit_code == 0:
            self._sign("early_exit", "the process ended with exit code 0 in the middle of a call")
        raise Gone(self._gone)

    def _understood(self, line: bytes) -> dict[str, Any] | None:
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        expected = (self._key, self._number)
        if not isinstance(answer, dict) or (answer.get("key"), answer.get("n")) != expected:
            self._sign("forged_frame", f"wrote to the channel: {line[:60]!r}")
            return None
        if not {"value", "raised", "callback"} & set(answer):
            self._sign("forged_frame", f"answered nothing: {line[:60]!r}")
            return None
        patched = answer.get("patched")
        if isinstance(patched, list) and patched:
            self._sign("patched_builtins", ", ".join(map(str, patched))[:200])
        return answer

    def _sign(self, kind: Any, evidence: str) -> None:
        self.tampering.append(Tampering(kind=kind, evidence=evidence))


async def start_callee(sandbox: Sandbox, timeout_s: float) -> CalleeProcess:
    """Start the submission's process in a sandbox that holds its files."""
    key = secrets.token_hex(16)
    process = await sandbox.start(
        ExecRequest(
            code=bundle("plain", "callee"), timeout_s=timeout_s, kill_output_bytes=256 * MIB
        )
    )
    await process.write(json.dumps({"folder": sandbox.workspace, "key": key}).encode() + b"\n")
    return CalleeProcess(sandbox, process, key)
