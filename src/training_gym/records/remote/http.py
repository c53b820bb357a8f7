"""The collector behind HTTP: `POST /api/v1/runs/<run id>/records`, with the run's write token.

200 with `accepted` and `duplicates`; 401 without the run's token; 400 for what is no record; 413
for what is too large; 507 where it cannot be written. Everything but 200 has `error` and `fix`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from training_gym.records.remote.collector import Collector, Unauthorized
from training_gym.records.remote.wire import BODY_BYTES
from training_gym.spec.errors import GymError, RecordsError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


def routes(collector: Collector) -> list[Route]:
    """What to add to a web application; raises `RecordsError` without starlette."""
    try:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise RecordsError(
            "collecting records needs starlette, which is not installed",
            fix="pip install 'training-gym[dashboard]'",
        ) from error

    async def receive(request: Request) -> Response:
        run_id = request.path_params["run_id"]
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise Unauthorized("no token was sent", fix="Authorization: Bearer TOKEN")
            collector.authorize(run_id, token)  # before a byte of the body is read
            body = await _body(request)
            if body is None:
                return JSONResponse(
                    {"error": f"more than {BODY_BYTES} bytes", "fix": "send fewer records"}, 413
                )
            receipt = await run_in_threadpool(collector.receive, run_id, token, body)
        except GymError as error:
            return JSONResponse({"error": error.message, "fix": error.fix}, _status(error))
        return JSONResponse({"accepted": receipt.accepted, "duplicates": receipt.duplicates})

    return [Route("/api/v1/runs/{run_id}/records", receive, methods=["POST"])]


def application(runs: Path) -> Starlette:
    """An application that only collects, into the runs of a folder."""
    collector = Collector(runs)
    added = routes(collector)
    from starlette.applications import Starlette

    return Starlette(routes=added)


async def _body(request: Request) -> bytes | None:
    """The body; None: it is too large, whatever its header says."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > BODY_BYTES:
        return None
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _status(error: GymError) -> int:
    if isinstance(error, Unauthorized):
        return 401
    if error.message.startswith("cannot use"):
        return 507
    return 413 if "bytes;" in error.message else 400
