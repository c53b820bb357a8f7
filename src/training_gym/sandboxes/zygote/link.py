"""The host's end of the stream to one sandbox: frames in, frames out, one handler a channel."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from training_gym.sandboxes.zygote.inside import frames
from training_gym.spec.sandboxes import SandboxDied, StartFailed, StartTimeout

WINDOW = 1 << 20
"""Bytes of stdin under way before the sandbox has to say that it passed some on."""

Handler = Callable[[int, bytes], None]


async def receive_ready(
    link: socket.socket, timeout_s: float
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """What a new sandbox says first, and the descriptors that come with it.

    Raises `StartTimeout`, or `StartFailed` with the sandbox's own reason.
    """
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    link.setblocking(False)
    loop.add_reader(link, _settle, readable)
    try:
        await asyncio.wait_for(readable, timeout_s)
    except TimeoutError:
        raise StartTimeout(
            f"the sandbox was not ready after {timeout_s:g} s", fix="raise timeout_s, or try again"
        ) from None
    finally:
        loop.remove_reader(link)
    try:
        data, fds, _, _ = socket.recv_fds(link, 1 << 16, 8, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        data, fds = b"", []
    for kind, _, payload in frames.Parser().feed(data):
        told = json.loads(payload)
        if kind == frames.READY and len(fds) == 3:
            return told, tuple(fds)
        why = told.get("error", "it said something else")
        break
    else:
        why = "it ended without a word"
    for fd in fds:
        os.close(fd)
    raise StartFailed(
        f"the sandbox could not start: {why}",
        fix="check its image, mounts and resources; `training-gym sandbox doctor` knows more",
    )


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Link(asyncio.Protocol):
    """Speaks with process 1 of one sandbox."""

    def __init__(self, lost: Callable[[], None]) -> None:
        """`lost` is called once, when the stream ends."""
        self._lost = lost
        self._parser = frames.Parser()
        self._handlers: dict[int, Handler] = {}
        self._credits: dict[int, int] = {}
        self._credited: dict[int, asyncio.Event] = {}
        self._transport: asyncio.Transport | None = None
        self.opened: Handler | None = None
        """Called with the channel of each connection from inside and its payload."""

    @classmethod
    async def over(cls, link: socket.socket, lost: Callable[[], None]) -> Link:
        """A link over a connected socket, which it then owns."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(lambda: cls(lost), sock=link)
        return protocol

    @property
    def is_open(self) -> bool:
        """Whether anything can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def handle(self, channel: int, handler: Handler | None) -> None:
        """Give a channel's frames to a handler; None: drop them from now on."""
        if handler is None:
            self._handlers.pop(channel, None)
            self._credits.pop(channel, None)
            self._credited.pop(channel, asyncio.Event()).set()
        else:
            self._handlers[channel] = handler

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Send one frame; raises `SandboxDied`."""
        if self._transport is None or self._transport.is_closing():
            raise SandboxDied("the sandbox is gone", fix="use a fresh one")
        self._transport.write(frames.frame(kind, channel, payload))

    def send_document(self, kind: int, channel: int, value: dict[str, Any]) -> None:
        """Send one frame of JSON; raises `SandboxDied`."""
        self.send(kind, channel, json.dumps(value).encode())

    async def pour(self, kind: int, channel: int, data: bytes, window: int = WINDOW) -> None:
        """Send data in pieces as the sandbox passes them on; ends early if the channel is closed.

        The part that fits the window is sent at once.
        """
        view = memoryview(data)
        while view and channel in self._handlers:
            credit = self._credits.setdefault(channel, window)
            if credit == 0:
                event = self._credited.setdefault(channel, asyncio.Event())
                event.clear()
                await event.wait()
                continue
            piece = view[: min(credit, frames.MAX_FRAME // 4)]
            self._credits[channel] -= len(piece)
            self.send(kind, channel, bytes(piece))
            view = view[len(piece) :]

    def close(self) -> None:
        """Hang up; the sandbox ends."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        try:
            for kind, channel, payload in self._parser.feed(data):
                self._dispatch(kind, channel, payload)
        except (ValueError, KeyError):  # process 1 never says such things: it is not ours any more
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        for event in self._credited.values():
            event.set()
        self._lost()

    def _dispatch(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == frames.TOOK:
            if channel in self._credits:
                self._credits[channel] += int.from_bytes(payload, "big")
            if channel in self._credited:
                self._credited[channel].set()
        elif kind == frames.OPEN:
            if self.opened is not None:
                self.opened(channel, payload)
        elif channel in self._handlers:
            self._handlers[channel](kind, payload)
