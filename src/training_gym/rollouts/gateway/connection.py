"""One HTTP request over ASGI: its body in, an answer out, and whether the client is still there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.rollouts.gateway.refusals import Refused

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_fast_dumps: Callable[[Any], bytes] | None = (
    import_module("orjson").dumps if find_spec("orjson") else None
)
"""Writes what `json` writes, several times as fast; refuses large integers and surrogates."""


class Connection:
    """A request that is answered once."""

    def __init__(
        self, scope: Mapping[str, Any], receive: Receive, send: Send, limits: GatewayLimits
    ) -> None:
        """Nothing is read yet."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self._send = send
        self._limits = limits
        self.gone = False
        self.started = False

    def header(self, name: str) -> str:
        """A header's value, empty where there is none."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    async def body(self) -> bytes:
        """The whole body; raises `Refused` where it is too long or takes too long."""
        limit = self._limits.max_body_bytes
        declared = self.header("content-length")
        if declared.isdecimal() and int(declared) > limit:
            raise _too_long(int(declared), limit)
        chunks: list[bytes] = []
        length = 0
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    event = await self._receive()
                    if event["type"] == "http.disconnect":
                        self.gone = True
                        raise Refused("the client has gone", fix="nothing", status=499)
                    chunk = event.get("body", b"")
                    length += len(chunk)
                    if length > limit:
                        raise _too_long(length, limit)
                    chunks.append(chunk)
                    if not event.get("more_body"):
                        return b"".join(chunks)
        except TimeoutError:
            raise Refused(
                f"the body did not arrive within {self._limits.body_timeout_s:g} s",
                fix="send it faster",
                status=408,
                code="timeout",
            ) from None

    async def disconnected(self) -> None:
        """Return once the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True

    async def until(self, task: asyncio.Task[Any]) -> None:
        """Return once the task is done or the client has gone.

        The request's own task listens, and the other's end interrupts it as a deadline would:
        a task only for listening costs a good part of what a short request does.
        """
        if task.done():
            return
        now = asyncio.get_running_loop().time
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as deadline:

                def wake(_: object) -> None:
                    deadline.reschedule(now())

                task.add_done_callback(wake)
                try:
                    await self.disconnected()
                finally:
                    task.remove_done_callback(wake)

    async def send_json(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """The whole answer."""
        body = json_bytes(value)
        await self._start(status, b"application/json", {**(headers or {})}, len(body))
        await self._put(body, more=False)

    async def start_stream(self) -> None:
        """Begin an answer that comes in events."""
        await self._start(200, b"text/event-stream", {"cache-control": "no-cache"}, None)

    async def send_events(self, data: bytes, *, more: bool = True) -> None:
        """A part of a stream."""
        await self._put(data, more=more)

    async def _start(
        self, status: int, kind: bytes, headers: Mapping[str, str], length: int | None
    ) -> None:
        pairs = [(b"content-type", kind)]
        if length is not None:
            pairs.append((b"content-length", str(length).encode()))
        pairs += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def _put(self, data: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._limits.send_timeout_s):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except (TimeoutError, OSError):
            self.gone = True  # it reads nothing, or is not there


def json_bytes(value: Any) -> bytes:
    """JSON as it goes over the wire; half of a surrogate pair goes escaped."""
    if _fast_dumps is not None:
        with contextlib.suppress(TypeError):
            return _fast_dumps(value)
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def read_json(body: bytes) -> Any:
    """A request's JSON; raises `Refused` for anything else."""
    try:
        value = json.loads(body, parse_constant=_no_number)
        if b"\\ud" in body.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused(
            "the body has half of a surrogate pair", fix="send whole characters"
        ) from None
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"the body is no JSON: {error!s:.80}", fix="send one JSON object", code="invalid_json"
        ) from None
    return value


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _too_long(length: int, limit: int) -> Refused:
    return Refused(
        f"a body of {length} bytes, {limit} are taken",
        fix="send less",
        status=413,
        code="request_too_large",
    )
