"""The host's end of connections from inside a sandbox: each goes to the one service opened."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside.tunnel import WINDOW
from training_gym.sandboxes.zygote.link import Link
from training_gym.spec.sandboxes import HostService, SandboxDied, SandboxError, SandboxUnsupported

_ANSWER_S = 10.0
_PIECE = 1 << 16
MAX_CONNECTIONS = 256
"""Open at once from one sandbox; more are closed at once."""


Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Makes one connection to a service."""


def dial(service: HostService) -> Dial:
    """How to reach a service; raises `SandboxUnsupported` for an address that is none."""
    if service.address.startswith("unix:"):
        return lambda: asyncio.open_unix_connection(service.address.removeprefix("unix:"))
    host, _, port = service.address.rpartition(":")
    if not host or not port.isdecimal():
        raise SandboxUnsupported(
            f"{service.address!r} is no address of a service",
            fix="give host:port or unix:/path/of/socket",
        )
    return lambda: asyncio.open_connection(host.strip("[]"), int(port))


class Tunnel:
    """All services opened to one sandbox."""

    def __init__(self, link: Link) -> None:
        """`link` leads to its process 1."""
        self._link = link
        self._dials: dict[int, Dial] = {}
        self._relays: dict[int, asyncio.Task[None]] = {}
        link.opened = self._opened

    async def open(self, reach: Dial, channel: int, port: int) -> str:
        """Let connections to a port inside reach a service; returns `host:port` there."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def receive(kind: int, payload: bytes) -> None:
            if not answer.done():
                answer.set_result(payload)

        self._link.handle(channel, receive)
        self._link.send(frames.LISTEN, channel, str(port).encode())
        try:
            told = json.loads(await asyncio.wait_for(answer, _ANSWER_S))
        except TimeoutError:
            raise SandboxDied("process 1 does not answer", fix="use a fresh sandbox") from None
        finally:
            self._link.handle(channel, None)
        if "error" in told:
            raise SandboxDied(f"no port can be opened: {told['error']}", fix="use a fresh sandbox")
        self._dials[channel] = reach
        return f"127.0.0.1:{told['port']}"

    def close(self) -> None:
        """End all connections."""
        for task in list(self._relays.values()):
            task.cancel()

    def _opened(self, channel: int, payload: bytes) -> None:
        reach = self._dials.get(int.from_bytes(payload, "big"))
        if reach is None or channel in self._relays or len(self._relays) >= MAX_CONNECTIONS:
            self._link.send(frames.CLOSE, channel, b"refused")
            return
        # Handled from now on: the first data may come before the service has answered.
        relay = Relay(self._link, channel, reach)
        self._relays[channel] = asyncio.create_task(relay.run())
        self._relays[channel].add_done_callback(lambda _: self._relays.pop(channel, None))


class Relay:
    """One connection."""

    def __init__(self, link: Link, channel: int, reach: Dial) -> None:
        """`channel` was opened by process 1."""
        self._link, self._channel, self._reach = link, channel, reach
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queued = 0
        self._broken = asyncio.Event()
        link.handle(channel, self._receive)

    async def run(self) -> None:
        """Until both sides have ended, or one is broken."""
        writer = None
        try:
            reader, writer = await self._reach()
            both = asyncio.gather(self._upwards(writer), self._downwards(reader))
            broken = asyncio.create_task(self._broken.wait())
            try:
                waits: set[asyncio.Future[Any]] = {both, broken}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                broken.cancel()
                both.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await both
        except (OSError, SandboxError):
            with contextlib.suppress(SandboxError):
                self._link.send(frames.CLOSE, self._channel, b"broken")
        finally:
            self._link.handle(self._channel, None)
            if writer is not None:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _upwards(self, writer: asyncio.StreamWriter) -> None:
        """From the sandbox to the service."""
        while (data := await self._incoming.get()) is not None:
            writer.write(data)
            await writer.drain()
            self._queued -= len(data)
            self._link.send(frames.TOOK, self._channel, len(data).to_bytes(4, "big"))
        if writer.can_write_eof():
            writer.write_eof()

    async def _downwards(self, reader: asyncio.StreamReader) -> None:
        """From the service to the sandbox."""
        while data := await reader.read(_PIECE):
            await self._link.pour(frames.DATA, self._channel, data, WINDOW)
        self._link.send(frames.CLOSE, self._channel)

    def _receive(self, kind: int, payload: bytes) -> None:
        if kind == frames.DATA:
            self._queued += len(payload)
            if self._queued > WINDOW:  # more than it was allowed: not our process 1 any more
                self._broken.set()
                return
            self._incoming.put_nowait(payload)
        elif kind == frames.CLOSE:
            self._incoming.put_nowait(None)
            if payload:
                self._broken.set()
