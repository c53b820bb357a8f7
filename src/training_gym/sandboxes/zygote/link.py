"""The host's end of the stream to one sandbox: frames in, frames out, one handler a channel.

It sits on the event loop's readers and writers directly: a transport would cost more time than
many a command takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from training_gym.sandboxes.zygote.inside import frames
from training_gym.spec.sandboxes import SandboxDied, StartFailed, StartTimeout

WINDOW = 1 << 20
"""Bytes of stdin under way before the sandbox has to say that it passed some on."""
_PIECE = 1 << 16

Handler = Callable[[int, bytes], None]


async def receive_ready(
    link: socket.socket, timeout_s: float
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """What a new sandbox says first, and the descriptors that come with it.

    Raises `StartTimeout`, or `StartFailed` with the sandbox's own reason.
    """
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[bool] = loop.create_future()
    link.setblocking(False)
    fd = link.fileno()  # given the socket, a loop looks its names up to describe it, each time
    loop.add_reader(fd, _settle, readable, True)
    timer = loop.call_later(timeout_s, _settle, readable, False)
    try:
        in_time = await readable
    finally:
        timer.cancel()
        loop.remove_reader(fd)
    if not in_time:
        raise StartTimeout(
            f"the sandbox was not ready after {timeout_s:g} s", fix="raise timeout_s, or try again"
        )
    try:
        data, fds, _, _ = socket.recv_fds(link, 1 << 12, 8, socket.MSG_CMSG_CLOEXEC)
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


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


class Link:
    """Speaks with process 1 of one sandbox."""

    def __init__(self, link: socket.socket, lost: Callable[[], None]) -> None:
        """Over a connected socket, which it then owns; `lost` is called once, at its end."""
        self._socket, self._fd = link, link.fileno()
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._parser = frames.Parser()
        self._channels = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._credits: dict[int, int] = {}
        self._credited: dict[int, asyncio.Event] = {}
        self._unsent = bytearray()
        self.is_open = True
        """Whether anything can be sent."""
        self.opened: Handler | None = None
        """Called with the channel of each connection from inside and its payload."""
        self._loop.add_reader(self._fd, self._receive)

    def new_channel(self) -> int:
        """A number for something new that the host begins."""
        return next(self._channels)

    def handle(self, channel: int, handler: Handler | None) -> None:
        """Give a channel's frames to a handler; None: drop them from now on."""
        if handler is None:
            self._handlers.pop(channel, None)
            self._credits.pop(channel, None)
            event = self._credited.pop(channel, None)
            if event is not None:
                event.set()
        else:
            self._handlers[channel] = handler

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Send one frame; raises `SandboxDied`."""
        self.send_all(frames.frame(kind, channel, payload))

    def send_all(self, data: bytes) -> None:
        """Send whole frames; raises `SandboxDied`."""
        if not self.is_open:
            raise SandboxDied("the sandbox is gone", fix="use a fresh one")
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:  # the end is heard of by reading
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._fd, self._flush)
        self._unsent += data

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
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._fd)
        if self._unsent:
            self._loop.remove_writer(self._fd)
        self._socket.close()
        for event in self._credited.values():
            event.set()
        self._lost()

    def _flush(self) -> None:
        with contextlib.suppress(OSError):  # full still, or its end: that is heard of by reading
            del self._unsent[: self._socket.send(self._unsent)]
            if not self._unsent:
                self._loop.remove_writer(self._fd)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            for kind, channel, payload in self._parser.feed(data):
                self._dispatch(kind, channel, payload)
        except (ValueError, KeyError):  # process 1 never says such things: it is not ours any more
            self.close()

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
