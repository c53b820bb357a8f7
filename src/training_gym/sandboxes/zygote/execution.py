"""One command from the host's side: what it wrote so far, its result when it comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.link import Link
from training_gym.spec.sandboxes import ExecRequest, ExecResult, Output, SandboxDied, SandboxError

_STREAMS: dict[int, Any] = {frames.STDOUT: "stdout", frames.STDERR: "stderr"}
GRACE_S = 10.0
"""Beyond a command's own deadline, kept by process 1, until the host ends the sandbox."""


class Execution:
    """A command that was sent to a sandbox."""

    def __init__(
        self, link: Link, channel: int, request: ExecRequest, describe: Callable[..., ExecResult]
    ) -> None:
        """`describe` makes a result of what process 1 tells and of kept output."""
        self._link, self._channel, self._request = link, channel, request
        self._describe = describe
        self._ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._kept: dict[int, bytearray] = {frames.STDOUT: bytearray(), frames.STDERR: bytearray()}
        self._pieces: deque[Output] | None = None
        self._news = asyncio.Event()
        self._stdin: asyncio.Task[None] | None = None
        link.handle(channel, self._receive)

    def begin(self, document: dict[str, Any], stdin: bytes | AsyncIterable[bytes] | None) -> None:
        """Send it; stdin None: it stays open."""
        request = self._request
        told = {
            "timeout_s": request.timeout_s,
            "keep": request.max_output_bytes,
            "allowed": request.kill_output_bytes,
            **document,
        }
        data = frames.document(frames.RUN, self._channel, told)
        if stdin == b"":
            data += frames.frame(frames.STDIN, self._channel)
        self._link.send_all(data)
        if stdin:
            self._stdin = asyncio.create_task(self._pour(stdin))

    async def _pour(self, stdin: bytes | AsyncIterable[bytes]) -> None:
        if isinstance(stdin, bytes):
            await self.write(stdin)
        else:
            async for piece in stdin:
                if self._ended.done():
                    break
                await self.write(piece)
        await self.write(b"")

    async def write(self, data: bytes) -> None:
        """More stdin; empty: its end."""
        if self._ended.done():
            return
        if data:
            await self._link.pour(frames.STDIN, self._channel, data)
        else:
            self._link.send(frames.STDIN, self._channel)

    def kill(self, failure: str = "") -> None:
        """Ask process 1 to end it."""
        if not self._ended.done() and self._link.is_open:
            self._link.send(frames.KILL, self._channel, failure.encode())

    async def result(self) -> ExecResult:
        """Its end; raises `SandboxDied` if it never comes.

        A stdin whose source failed ends the command, and the failure is raised.
        """
        patience_s = self._request.timeout_s + GRACE_S
        timer = asyncio.get_running_loop().call_later(patience_s, self._give_up, patience_s)
        try:
            if self._stdin is not None:
                waits: set[asyncio.Future[Any]] = {self._ended, self._stdin}
                await asyncio.wait(waits, return_when=asyncio.FIRST_EXCEPTION)
                if not self._ended.done():
                    self.kill()
            told = await asyncio.shield(self._ended)
        finally:
            timer.cancel()
            await self._close_stdin()
        if self._stdin is not None and not self._stdin.cancelled():
            error = self._stdin.exception()
            if error is not None and not isinstance(error, SandboxError):
                raise error
        return self._describe(told, *(bytes(kept) for kept in self._kept.values()))

    def _give_up(self, patience_s: float) -> None:
        self.fail(
            SandboxDied(
                f"process 1 did not end the command within {patience_s:g} s",
                fix="use a fresh sandbox",
            )
        )

    async def _close_stdin(self) -> None:
        if self._stdin is not None and not self._stdin.done():
            self._stdin.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._stdin

    def divert(self) -> None:
        """Hand over pieces as they come, instead of keeping them for the result."""
        if self._pieces is None:
            self._pieces = deque()

    async def pieces(self) -> AsyncGenerator[Output, None]:
        """What it writes, to its end."""
        self.divert()
        assert self._pieces is not None
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if self._ended.done():
                return
            self._news.clear()
            await self._news.wait()

    def fail(self, error: SandboxError) -> None:
        """The sandbox is gone."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # marked as seen: nobody may be waiting
        self._news.set()

    @property
    def is_over(self) -> bool:
        """Whether its end is known."""
        return self._ended.done()

    def _receive(self, kind: int, payload: bytes) -> None:
        if kind == frames.EXIT:
            self._link.handle(self._channel, None)
            if not self._ended.done():
                self._ended.set_result(json.loads(payload))
        elif kind in _STREAMS:
            # Process 1 keeps the limit, but it could be taken over: never trust it with memory.
            kept = self._kept[kind]
            room = self._request.max_output_bytes - len(kept)
            if self._pieces is not None:
                self._pieces.append(Output(stream=_STREAMS[kind], data=payload))
            elif room > 0:
                kept += payload[:room]
        self._news.set()
