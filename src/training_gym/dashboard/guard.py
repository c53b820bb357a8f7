"""What stands before every request: whose host name it asks for, who asks, and how much it sends.

A page elsewhere can make a browser send requests here. It cannot pass for us: the host name must be
one of ours (so that no name of theirs can be bound to this address), writing takes a JSON body from
our own origin, and cookies are only sent along from our own pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from training_gym.dashboard.access import COOKIE_DAYS, Access, Identity
from training_gym.dashboard.answers import failure

MOST_BYTES = 1024 * 1024
"""Largest request body that is taken."""
BODY_S = 30.0
"""Seconds within which a body must have come."""
SIGN_IN = "/api/v1/session"
METRICS = "/metrics"
SAFE = frozenset({"GET", "HEAD"})
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Lets requests through to the application, or answers for it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        hosts: Collection[str],
        cookie: str,
        methods: Callable[[Scope], Collection[str]],
    ) -> None:
        """`hosts`: names this server answers to, without port; `cookie`: name of its cookie.

        `methods`: what an address of the interface takes; nothing: there is no such address.
        """
        self._app, self._access, self._methods = app, access, methods
        self._hosts, self._cookie = {host.lower() for host in hosts}, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        secured = _with_headers(send)
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            allowed = self._methods(scope) if _is_api(scope) else SAFE
            told = {"allow": ", ".join(sorted(allowed))} if refused[0] == 405 else None
            await failure(*refused, headers=told)(scope, receive, secured)
        elif scope["method"] in SAFE and not _is_api(scope) and b"token=" in scope["query_string"]:
            await self._exchange(scope, secured)
        else:
            await self._pass_on(scope, receive, secured)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken, whole = 0, False
        deadline = asyncio.get_running_loop().time() + BODY_S

        async def bounded() -> Message:
            nonlocal taken, whole
            if whole:  # then what comes next is that the other side has gone, whenever it goes
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body did not come within {BODY_S:g} s") from None
            taken += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if taken > MOST_BYTES:  # whatever its headers said
                raise HTTPException(_TOO_LARGE[0], _TOO_LARGE[1])
            return message

        await self._app(scope, bounded, send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        host = _host_name(headers.get("host", ""))
        if host not in self._hosts:
            return (
                421,
                f"this dashboard does not answer to the host name {host!r:.80}",
                "start it with --allow-host NAME if that name is yours",
            )
        if not _is_api(scope):
            return None if scope["method"] in SAFE else (405, "pages are only read", "use GET")
        identity = self._identify(scope, headers)
        scope.setdefault("state", {})["identity"] = identity
        signs_in = scope["path"] == SIGN_IN and scope["method"] == "POST"
        if identity is None and not signs_in:
            return 401, "who are you?", "open the address that training-gym dashboard printed"
        allowed = self._methods(scope)
        if allowed and scope["method"] not in allowed:
            method = f"{scope['method']!r:.40}"
            return (
                405,
                f"this address does not take {method}",
                f"use {' or '.join(sorted(allowed))}",
            )
        if not allowed and scope["method"] not in SAFE:
            return 404, f"there is nothing at {scope['path'][:200]!r}", "see docs/dashboard.md"
        if scope["method"] not in SAFE:
            return _write_refusal(headers, identity, signs_in)
        return None

    def _identify(self, scope: Scope, headers: Headers) -> Identity | None:
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie)
        if cookie is not None:
            try:
                known = self._access.by_cookie(cookie)
            except (ValueError, TypeError):  # signed by us, but in another version's shape
                known = None
            if known is not None:
                return known
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._access.by_key(key.strip())
        peer = (scope.get("client") or ("", 0))[0]
        return self._access.by_header(headers, peer)

    async def _exchange(self, scope: Scope, send: Send) -> None:
        """Give a cookie for the key in the address, and take the key out of the address."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        identity = self._access.by_key(next(value for name, value in query if name == "token"))
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope["path"].lstrip("/\\")
        headers = [
            (b"location", (path + (f"?{rest}" if rest else "")).encode("ascii", "ignore")),
            (b"cache-control", b"no-store"),
        ]
        if identity is not None:
            headers.append((b"set-cookie", self.set_cookie(identity).encode()))
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def set_cookie(self, identity: Identity) -> str:
        """The header that gives somebody their cookie."""
        value = self._access.cookie(identity)
        age = COOKIE_DAYS * 86400
        return f"{self._cookie}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"


_TOO_LARGE = (413, f"more than {MOST_BYTES} bytes", "send less; notes take 20,000 characters")


def _write_refusal(
    headers: Headers, identity: Identity | None, signs_in: bool
) -> tuple[int, str, str] | None:
    origin = headers.get("origin")
    foreign = origin is not None and origin.partition("://")[2] != headers.get("host")
    if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "another site's page may not write here", "open the dashboard itself"
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return 415, "a body must be application/json", "send JSON"
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return _TOO_LARGE
    if not signs_in and (identity is None or identity.role != "editor"):
        return 403, "you may read, not write", "ask for the address of an editor"
    return None


def _is_api(scope: Scope) -> bool:
    """Whether it needs an identity: all but the pages, which hold nothing of anybody's."""
    path: str = scope["path"]
    return path in ("/api", METRICS) or path.startswith("/api/")


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].lstrip("[").lower()
    return host.partition(":")[0].lower().rstrip(".")


def _with_headers(send: Send) -> Send:
    async def secured(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return secured
