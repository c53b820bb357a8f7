"""How long a connection may take to ask for something, and how many may be about to.

The guard bounds bodies, uvicorn closes connections on which nothing comes after an answer. Between
the two stands whoever sends headers and never their end, a byte now and then: such a connection is
closed after `headers_s`, and the longest-standing of them at once if there are too many.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass
class Patience:
    """With all connections of one server."""

    headers_s: float = 10.0
    """From connecting, or the first byte after an answer, to the end of the headers."""
    most_waiting: int = 256
    """Connections that have not asked yet."""
    _waiting: dict[PatientProtocol, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    """In the order in which they began."""

    @property
    def num_waiting(self) -> int:
        """Connections that have not asked yet, now."""
        return len(self._waiting)

    def begin(self, connection: PatientProtocol) -> None:
        """Nothing was asked on it so far; its time runs on if it runs already."""
        if connection in self._waiting:
            return
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(self.headers_s, connection.give_up)
        if len(self._waiting) > self.most_waiting:
            next(iter(self._waiting)).give_up()

    def end(self, connection: PatientProtocol) -> None:
        """It has asked, or is gone."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def protocol(self, **given: Any) -> PatientProtocol:
        """What uvicorn makes for each connection."""
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return PatientProtocol(self, H11Protocol(**given))


class PatientProtocol(asyncio.Protocol):
    """Uvicorn's HTTP/1.1, and a look at whether a request has come whole."""

    def __init__(self, patience: Patience, http: Any) -> None:
        """`http`: uvicorn's protocol, whose `cycle` is the latest request and its answer."""
        self._patience, self._http = patience, http
        self._transport: Any = None
        self._has_spoken = False

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        self._transport = transport
        self._http.connection_made(transport)
        self._patience.begin(self)

    def data_received(self, data: bytes) -> None:
        """Some of a request, or more than one."""
        self._has_spoken = True
        before = self._http.cycle
        self._http.data_received(data)
        latest = self._http.cycle
        if latest is not before:
            self._patience.end(self)
        elif latest is None or latest.response_complete:
            self._patience.begin(self)

    def eof_received(self) -> None:
        """They will say no more."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """They do not read as fast as we write."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """They have read."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._patience.end(self)
        self._http.connection_lost(exc)

    def give_up(self) -> None:
        """Close it, and say why to somebody who has begun to ask."""
        self._patience.end(self)
        if self._has_spoken and not self._transport.is_closing():
            self._transport.write(_TOO_SLOW)
        self._transport.close()
