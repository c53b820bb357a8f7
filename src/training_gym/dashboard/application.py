"""The ASGI application: the guard, the interface under `/api/v1`, the web app for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Mount, Route
from starlette.types import ASGIApp, Scope

from training_gym.dashboard import asked, episode_pages, live, run_pages, write_pages
from training_gym.dashboard.access import Identity
from training_gym.dashboard.answers import answer, failure, gym_error, not_found, our_fault
from training_gym.dashboard.assets import WebApp
from training_gym.dashboard.guard import METRICS, SAFE, Guard
from training_gym.dashboard.state import ServerState, identity_of, state_of
from training_gym.records import prometheus
from training_gym.spec.errors import GymError
from training_gym.spec.settings import Settings

_API = "/api/v1"
COMPRESSED_FROM_BYTES = 2000
WRONG_PASSWORD_S = 1.0
"""Seconds that a wrong password costs; they are tried one at a time."""


class Password(Settings):
    """What somebody signs in with."""

    password: str


def build(
    state: ServerState, *, app: WebApp, hosts: Collection[str], cookie: str = "training_gym"
) -> ASGIApp:
    """The application; `hosts` are the names it answers to."""
    routes: list[Any] = [
        Route("/session", session),
        Route("/session", sign_in, methods=["POST"]),
        *run_pages.ROUTES,
        *episode_pages.ROUTES,
        *write_pages.ROUTES,
        *live.ROUTES,
    ]
    handlers: dict[Any, Any] = {GymError: gym_error, HTTPException: _refused, Exception: our_fault}
    inner = Starlette(
        routes=[Mount(_API, routes=[*routes, Route("/{rest:path}", _nothing_here)]),
                Route("/api/{rest:path}", _nothing_here),
                Route(METRICS, prometheus_metrics), Route("/{rest:path}", app.respond)],
        exception_handlers=handlers,
    )  # fmt: skip
    inner.state.server = state
    inner.state.signing_in = asyncio.Lock()
    packed = GZipMiddleware(inner, minimum_size=COMPRESSED_FROM_BYTES, compresslevel=4)
    guard = Guard(packed, access=state.access, hosts=hosts, cookie=cookie,
                  methods=partial(_methods, routes))  # fmt: skip
    inner.state.guard = guard
    return guard


def _methods(routes: Sequence[Route], scope: Scope) -> frozenset[str]:
    """What may be done at an address of the interface; nothing where there is no such address."""
    if scope["path"] == METRICS:
        return SAFE
    if not scope["path"].startswith(f"{_API}/"):
        return frozenset()
    below = {**scope, "root_path": f"{scope.get('root_path', '')}{_API}"}
    found = [route.methods or () for route in routes if route.matches(below)[0] is not Match.NONE]
    return frozenset(method for methods in found for method in methods)


def session(request: Request) -> Response:
    """Who asks, and of what."""
    from training_gym import __version__

    identity = identity_of(request)
    home = str(state_of(request).folder.parent)
    return answer(
        {"role": identity.role, "name": identity.name, "version": __version__, "home": home}
    )


def prometheus_metrics(request: Request) -> Response:
    """Newest values for whoever scrapes with a key."""
    text = prometheus.exposition(state_of(request).index)
    return Response(
        text, headers={"content-type": prometheus.CONTENT_TYPE, "cache-control": "no-store"}
    )


async def sign_in(request: Request) -> Response:
    """Give a cookie for the password; a wrong one takes its time."""
    given = await asked.body(request, Password)
    async with request.app.state.signing_in:
        identity: Identity | None = await asyncio.to_thread(
            state_of(request).access.by_password, given.password
        )
        if identity is None:
            await asyncio.sleep(WRONG_PASSWORD_S)
            return failure(401, "that is not the password", "ask whoever started the dashboard")
    cookie = request.app.state.guard.set_cookie(identity)
    return answer({"role": identity.role, "name": identity.name}, headers={"set-cookie": cookie})


async def _nothing_here(request: Request) -> Response:
    return await not_found(request, Exception())


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return await not_found(request, error)
    return failure(error.status_code, error.detail, "see docs/dashboard.md")
