"""Connections from inside the sandbox, carried to the host over the link.

Process 1 listens on the sandbox's own loopback. What a command sends there goes to the host in
frames, and the host passes it to the one service it opened. Each side of a connection may have
`WINDOW` bytes under way: a slow peer slows its own connection only.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside.loop import Loop

WINDOW = 1 << 18
_PIECE = 1 << 16
_FIRST_CHANNEL = 1 << 31
"""Channels from here on are ours to number; those below, the host's."""


class Tunnels:
    """All listening sockets and connections of a sandbox."""

    def __init__(
        self, loop: Loop, send: Callable[[bytes], None], is_congested: Callable[[], bool]
    ) -> None:
        """`send` queues a frame for the host."""
        self._loop, self._send, self._is_congested = loop, send, is_congested
        self._channels = itertools.count(_FIRST_CHANNEL)
        self._connections: dict[int, Connection] = {}

    def listen(self, channel: int, payload: bytes) -> None:
        """Open a port for the service that the host calls `channel`; payload: port or empty."""
        try:
            server = socket.create_server(("127.0.0.1", int(payload or b"0")), backlog=64)
        except OSError as error:
            self._send(frames.document(frames.LISTENING, channel, {"error": str(error)}))
            return
        server.setblocking(False)
        self._loop.on_readable(server.fileno(), lambda: self._accept(server, channel))
        told = {"port": server.getsockname()[1]}
        self._send(frames.document(frames.LISTENING, channel, told))

    def data(self, channel: int, payload: bytes) -> None:
        """From the service."""
        if channel in self._connections:
            self._connections[channel].deliver(payload)

    def close(self, channel: int, payload: bytes) -> None:
        """The service has no more to say; with a payload: is gone."""
        if channel in self._connections:
            self._connections[channel].host_ended(abruptly=bool(payload))

    def took(self, channel: int, payload: bytes) -> None:
        """The host passed on what it had."""
        if channel in self._connections:
            self._connections[channel].credit(int.from_bytes(payload, "big"))

    def pause(self, yes: bool) -> None:
        """Stop or go on reading."""
        for connection in self._connections.values():
            connection.update(paused=yes)

    def _accept(self, server: socket.socket, service: int) -> None:
        try:
            accepted, _ = server.accept()
        except OSError:
            return
        channel = next(self._channels)
        self._send(frames.frame(frames.OPEN, channel, service.to_bytes(4, "big")))
        self._connections[channel] = Connection(
            self._loop, accepted, channel, self._send, lambda: self._connections.pop(channel)
        )
        self._connections[channel].update(paused=self._is_congested())


class Connection:
    """One accepted connection."""

    def __init__(
        self,
        loop: Loop,
        peer: socket.socket,
        channel: int,
        send: Callable[[bytes], None],
        closed: Callable[[], object],
    ) -> None:
        """`peer` is the command's end."""
        self._loop, self._peer, self._channel = loop, peer, channel
        self._send, self._closed = send, closed
        self._credit = WINDOW
        self._pending = bytearray()
        self._peer_ended = self._host_ended = self._paused = False
        peer.setblocking(False)

    def update(self, *, paused: bool | None = None) -> None:
        """Read while there is credit, write while there is something to."""
        if paused is not None:
            self._paused = paused
        if self._peer.fileno() < 0:
            return
        reads = not self._peer_ended and self._credit > 0 and not self._paused
        self._loop.on_readable(self._peer.fileno(), self._read if reads else None)
        self._loop.on_writable(self._peer.fileno(), self._write if self._pending else None)

    def deliver(self, data: bytes) -> None:
        """More from the host."""
        self._pending += data
        self._write()

    def credit(self, count: int) -> None:
        """The host took so many bytes."""
        self._credit += count
        self.update()

    def host_ended(self, *, abruptly: bool) -> None:
        """Nothing more comes from the host."""
        self._host_ended = True
        if abruptly:
            self._close()
        elif not self._pending:
            self._finish_writing()

    def _read(self) -> None:
        try:
            data = self._peer.recv(min(_PIECE, self._credit))
        except BlockingIOError:
            return
        except OSError:
            self._send(frames.frame(frames.CLOSE, self._channel, b"broken"))
            self._close()
            return
        if data:
            self._credit -= len(data)
            self._send(frames.frame(frames.DATA, self._channel, data))
        else:
            self._peer_ended = True
            self._send(frames.frame(frames.CLOSE, self._channel))
        self._settle()

    def _write(self) -> None:
        if not self._pending:
            return
        try:
            count = self._peer.send(self._pending[:_PIECE])
        except BlockingIOError:
            count = 0
        except OSError:
            self._send(frames.frame(frames.CLOSE, self._channel, b"broken"))
            self._close()
            return
        del self._pending[:count]
        if count:
            self._send(frames.frame(frames.TOOK, self._channel, count.to_bytes(4, "big")))
        if self._host_ended and not self._pending:
            self._finish_writing()
            return
        self.update()

    def _finish_writing(self) -> None:
        try:
            self._peer.shutdown(socket.SHUT_WR)
        except OSError:
            self._close()
            return
        self._settle()

    def _settle(self) -> None:
        if self._peer_ended and self._host_ended and not self._pending:
            self._close()
        else:
            self.update()

    def _close(self) -> None:
        if self._peer.fileno() >= 0:
            self._loop.forget(self._peer.fileno())
            self._peer.close()
            self._closed()
