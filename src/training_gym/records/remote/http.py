"""The collector behind HTTP.

| request | with | what it does |
| --- | --- | --- |
| `POST /api/v1/runs/RUN` | the collector's key | registers the run by its manifest: `write_token` |
| `POST /api/v1/runs/RUN/records` | the run's write token | `accepted` and `duplicates` |
| `PUT /api/v1/runs/RUN/documents/NAME` | the run's write token | keeps `result.json` and its kin |
| `GET /metrics` | a key that may read | newest values for Prometheus |

401 without the right token; 400 for what is none of these; 413 for what is too large; 507 where it
cannot be written. Everything but 200 has `error` and `fix`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from training_gym.records import prometheus
from training_gym.records.index import Index
from training_gym.records.remote.collector import Collector, Unauthorized
from training_gym.records.remote.wire import BODY_BYTES, TooLarge, too_large
from training_gym.spec.errors import GymError, RecordsError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    Handler = Callable[[Request], Awaitable[Response]]


T = TypeVar("T")


@dataclass(frozen=True)
class Keys:
    """Who may do what beyond sending a run's records, which takes that run's own token."""

    may_register: Callable[[str], bool]
    may_read: Callable[[str], bool]


def application(runs: Path, keys: Keys, cache: Path) -> Starlette:
    """The whole collector, into the runs of a folder; raises `RecordsError` without starlette."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise RecordsError(
            "collecting records needs starlette, which is not installed",
            fix="pip install 'training-gym[dashboard]'",
        ) from error
    served = _Served(Collector(runs), keys, Index(runs, cache))
    run = "/api/v1/runs/{run_id}"
    return Starlette(
        routes=[
            Route(run, _refusing(served.register), methods=["POST"]),
            Route(run + "/records", _refusing(served.receive), methods=["POST"]),
            Route(run + "/documents/{name:path}", _refusing(served.keep), methods=["PUT"]),
            Route("/metrics", _refusing(served.metrics), methods=["GET"]),
        ]
    )


class _Served:
    """One handler for each kind of request."""

    def __init__(self, collector: Collector, keys: Keys, index: Index) -> None:
        self._collector, self._keys, self._index = collector, keys, index

    async def register(self, request: Request) -> Response:
        token = _token(request)
        if not self._keys.may_register(token):
            raise Unauthorized(
                "this key may not register runs", fix="set TRAINING_GYM_COLLECTOR_TOKEN to its key"
            )
        given = await _in_thread(
            self._collector.register, request.path_params["run_id"], await _body(request)
        )
        return _answer({"write_token": given})

    async def receive(self, request: Request) -> Response:
        run_id, token = await self._known(request)
        receipt = await _in_thread(self._collector.receive, run_id, token, await _body(request))
        return _answer({"accepted": receipt.accepted, "duplicates": receipt.duplicates})

    async def keep(self, request: Request) -> Response:
        run_id, token = await self._known(request)
        name = request.path_params["name"]
        body = await _body(request)
        await _in_thread(self._collector.receive_document, run_id, token, name, body)
        return _answer({"kept": name})

    async def metrics(self, request: Request) -> Response:
        from starlette.responses import Response as Plain

        if not self._keys.may_read(_token(request)):
            raise Unauthorized("this key may not read", fix="Authorization: Bearer KEY")
        text = await _in_thread(prometheus.exposition, self._index)
        return Plain(text, headers={"content-type": prometheus.CONTENT_TYPE})

    async def _known(self, request: Request) -> tuple[str, str]:
        """The run and its token, before a byte of the body is read."""
        run_id, token = request.path_params["run_id"], _token(request)
        await _in_thread(self._collector.authorize, run_id, token)
        return run_id, token


def _refusing(handler: Handler) -> Handler:
    """What the handler refuses becomes an answer."""

    async def handled(request: Request) -> Response:
        try:
            return await handler(request)
        except GymError as error:
            return _answer({"error": error.message, "fix": error.fix}, _status(error))

    return handled


def _answer(value: dict[str, object], status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(value, status, headers={"cache-control": "no-store"})


async def _in_thread(work: Callable[..., T], *arguments: object) -> T:
    from starlette.concurrency import run_in_threadpool

    done: T = await run_in_threadpool(work, *arguments)
    return done


def _token(request: Request) -> str:
    scheme, _, token = str(request.headers.get("authorization", "")).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("no token was sent", fix="Authorization: Bearer TOKEN")
    return token.strip()


async def _body(request: Request) -> bytes:
    """The body; raises `TooLarge` whatever its header says."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > BODY_BYTES:
        raise too_large(int(announced), BODY_BYTES)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES:
            raise too_large(size, BODY_BYTES)
        parts.append(part)
    return b"".join(parts)


def _status(error: GymError) -> int:
    if isinstance(error, Unauthorized):
        return 401
    if error.message.startswith("cannot use"):
        return 507
    return 413 if isinstance(error, TooLarge) else 400
