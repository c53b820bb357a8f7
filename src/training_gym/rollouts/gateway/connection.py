"""One HTTP request over ASGI: its body in, an answer out, and whether the client is still there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.rollouts.gateway.refusals import Refused

Receive = Callable[[], Coroutine[Any, Any, MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, None]]

_fast_dumps: Callable[[Any], bytes] | None = (
    import_module("orjson").dumps if find_spec("orjson") else None
)
"""Writes what `json` writes, several times as fast; refuses large integers and surrogates."""

_NUMBERS = itertools.count(secrets.randbits(40))

LISTEN_AFTER_S = 0.02
"""An answer that is there sooner needs no listener for a client that goes away meanwhile."""


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
        self.id = f"req_{next(_NUMBERS):012x}"
        """Tells requests apart in answers and their headers."""
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
        event = self._at_hand()
        if event is not None and event["type"] == "http.request" and not event.get("more_body"):
            body: bytes = event.get("body", b"")  # all of it has come with the headers
            if len(body) > limit:
                raise _too_long(len(body), limit)
            return body
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                return await self._joined(event, limit)
        except TimeoutError:
            raise Refused(
                f"the body did not arrive within {self._limits.body_timeout_s:g} s",
                fix="send it faster",
                status=408,
                code="timeout",
            ) from None

    async def _joined(self, event: MutableMapping[str, Any] | None, limit: int) -> bytes:
        """The body from the parts that are still to come; `event` is the first of them."""
        chunks: list[bytes] = []
        length = 0
        while True:
            if event is None:
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
            event = None

    def _at_hand(self) -> MutableMapping[str, Any] | None:
        """What the server has for us without waiting; None: nothing.

        One step of its coroutine instead of a deadline around it. Nothing is lost when one that
        waits is closed, since a server takes an event from its queue only after the wait.
        """
        asking = self._receive()
        try:
            asking.send(None)
        except StopIteration as found:
            event: MutableMapping[str, Any] = found.value
            return event
        finally:
            asking.close()
        return None

    async def disconnected(self) -> None:
        """Return once the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True

    async def until(self, task: asyncio.Task[Any]) -> None:
        """Return once the task is done or the client has gone.

        A task that listens costs a good part of what a short request does, so there is none for
        an answer that comes at once: whether its client is still there is asked afterwards.
        """
        if not task.done():
            loop = asyncio.get_running_loop()
            over = loop.create_future()
            listeners: list[asyncio.Task[None]] = []

            def end(_: object) -> None:
                if not over.done():
                    over.set_result(None)

            def listen() -> None:
                listeners.append(loop.create_task(self.disconnected()))
                listeners[0].add_done_callback(end)

            task.add_done_callback(end)
            timer = loop.call_later(LISTEN_AFTER_S, listen)
            try:
                await over
            finally:
                timer.cancel()
                task.remove_done_callback(end)
                for listener in listeners:
                    listener.cancel()
        event = self._at_hand()
        if event is not None and event["type"] == "http.disconnect":
            self.gone = True

    async def send_json(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """The whole answer."""
        body = json_bytes(value)
        await self._start(status, b"application/json", {**(headers or {})}, len(body))
        await self._put({"type": "http.response.body", "body": body})

    async def start_stream(self) -> None:
        """Begin an answer that comes in events."""
        await self._start(200, b"text/event-stream", {"cache-control": "no-cache"}, None)

    async def send_events(self, data: bytes, *, more: bool = True) -> None:
        """A part of a stream."""
        await self._put({"type": "http.response.body", "body": data, "more_body": more})

    async def _start(
        self, status: int, kind: bytes, headers: Mapping[str, str], length: int | None
    ) -> None:
        own = self.id.encode()
        pairs = [(b"content-type", kind), (b"x-request-id", own), (b"request-id", own)]
        if length is not None:
            pairs.append((b"content-length", str(length).encode()))
        pairs += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.started = True
        await self._put({"type": "http.response.start", "status": status, "headers": pairs})

    async def _put(self, event: MutableMapping[str, Any]) -> None:
        """Hand the server an event; the client is given up where it reads nothing for too long."""
        if self.gone:
            return
        sending = self._send(event)
        try:
            waited = sending.send(None)
        except StopIteration:
            return  # it is in the server's buffer: only what waits needs a deadline
        except OSError:
            self.gone = True
            return
        try:
            async with asyncio.timeout(self._limits.send_timeout_s):
                await _resumed(sending, waited)
        except (TimeoutError, OSError):
            self.gone = True  # it reads nothing, or is not there


@types.coroutine
def _resumed(begun: Coroutine[Any, Any, Any], waited: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that has begun, and waits for `waited`."""
    try:
        while True:
            try:
                sent = yield waited
            except BaseException as error:  # noqa: BLE001 - it is the other's to handle
                waited = begun.throw(error)
            else:
                waited = begun.send(sent)
    except StopIteration as done:
        return done.value


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
        value = _DECODER.decode(body.decode("utf-8"))
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


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _too_long(length: int, limit: int) -> Refused:
    return Refused(
        f"a body of {length} bytes, {limit} are taken",
        fix="send less",
        status=413,
        code="request_too_large",
    )
