"""Frames over a socket: eight bytes of length, then JSON."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">Q")


def send_frame(channel: socket.socket, payload: bytes) -> None:
    """Send one frame, within the channel's timeout."""
    channel.sendall(_LENGTH.pack(len(payload)) + payload)


def receive_frame(
    channel: socket.socket, receive: Callable[[socket.socket, int], bytes]
) -> bytes | None:
    """The next frame, or None when the other side is gone; `receive` gets at most n bytes."""
    head = _exactly(channel, _LENGTH.size, receive)
    return None if head is None else _exactly(channel, _LENGTH.unpack(head)[0], receive)


def _exactly(
    channel: socket.socket, size: int, receive: Callable[[socket.socket, int], bytes]
) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = receive(channel, min(size - len(chunks), 1 << 20))
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)
