"""Answers in JSON as the command line writes it: NaN is a string, an error is two lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response

from training_gym.spec.errors import GymError


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON that nobody keeps."""
    kept = {"cache-control": "no-store", **(headers or {})}
    return Response(encoded(value), status, kept, media_type="application/json")


def encoded(value: Any) -> bytes:
    """A value as JSON; half surrogate pairs, which UTF-8 cannot hold, become escapes."""
    try:
        return to_json(value, inf_nan_mode="strings")
    except PydanticSerializationError:
        plain = to_jsonable_python(value, inf_nan_mode="strings")
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


def failure(
    status: int,
    message: str,
    fix: str,
    kind: str = "Refused",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error, in the shape of the command line's `error/1`."""
    said = {"type": kind, "message": message, "fix": fix}
    return answer({"schema": "error/1", "error": said}, status, headers)


async def gym_error(_: Request, error: Exception) -> Response:
    """What a user asked for that cannot be: their two lines."""
    assert isinstance(error, GymError)
    status = 404 if error.message.startswith("there is no run") else 400
    return failure(status, error.message, error.fix, type(error).__name__)


async def not_found(request: Request, _: Exception) -> Response:
    """An address of the interface that there is not."""
    where = request.url.path[:200]
    return failure(404, f"there is nothing at {where!r}", "see docs/dashboard.md")


async def our_fault(_: Request, error: Exception) -> Response:
    """A bug of ours: said to be one, its traceback on the server's side only."""
    what = type(error).__name__
    return failure(500, f"the dashboard failed: {what}", "report what it wrote to its terminal")
