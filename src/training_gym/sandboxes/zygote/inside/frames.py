"""What host and sandbox say to each other over one stream: typed, length-prefixed frames."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

HEADER = struct.Struct("!BII")
"""Kind, channel, length of what follows."""
MAX_FRAME = 1 << 20
"""Longest payload either side sends or accepts, bytes; longer data goes in several frames."""

RUN, STDIN, KILL, LISTEN = 1, 2, 3, 4  # from the host
READY, REFUSED, STDOUT, STDERR, EXIT, LISTENING = 16, 17, 18, 19, 20, 21  # from the sandbox
OPEN, DATA, CLOSE = 32, 33, 34  # connections, both ways
TOOK = 35  # how many bytes of STDIN or DATA were passed on: the sender's credit comes back

FAREWELL = b"farewell"
"""An owner's last message to its zygote, where it ends in order."""


def frame(kind: int, channel: int = 0, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, channel, len(payload)) + payload


def document(kind: int, channel: int, value: dict[str, Any]) -> bytes:
    """One frame that carries JSON."""
    return frame(kind, channel, json.dumps(value).encode())


class Parser:
    """Cuts a byte stream into frames."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        """`limit`: longest payload to accept; a longer one is a broken peer."""
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The frames completed by more data; raises `ValueError` on a broken stream."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            kind, channel, length = HEADER.unpack_from(self._buffer)
            if length > self._limit:
                raise ValueError(f"frame of {length} bytes")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield kind, channel, payload
