"""The gateway's paths, as an ASGI application.

```
POST {session}/v1/chat/completions   POST {session}/v1/completions   POST {session}/v1/responses
POST {session}/v1/messages           POST {session}/v1/messages/count_tokens
GET  {session}/v1/models             POST {session}/reward
```

`{session}` is `/s/<id>` with the session's key in a header, `/k/<key>`, or nothing: then the key
alone says whose request it is. Who has no key learns nothing, and no body of theirs is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Protocol

from training_gym.rollouts.gateway.answering import answer
from training_gym.rollouts.gateway.asked import Dialect
from training_gym.rollouts.gateway.connection import Connection, Receive, Send, read_json
from training_gym.rollouts.gateway.dialects.chat import Chat
from training_gym.rollouts.gateway.dialects.completions import Completions
from training_gym.rollouts.gateway.dialects.messages import Messages
from training_gym.rollouts.gateway.dialects.responses import Responses
from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.rollouts.gateway.refusals import Refused, unauthorized
from training_gym.rollouts.gateway.sessions import GatewaySession
from training_gym.spec.episodes import Score
from training_gym.spec.errors import GymError, SpecError

ANTHROPIC = Messages()
DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": Chat(),
    "/v1/completions": Completions(),
    "/v1/responses": Responses(),
    "/v1/messages": ANTHROPIC,
}
COUNT, MODELS, REWARD = "/v1/messages/count_tokens", "/v1/models", "/reward"
METHODS = {**dict.fromkeys(DIALECTS, "POST"), COUNT: "POST", MODELS: "GET", REWARD: "POST"}
SPOKEN = {**DIALECTS, COUNT: ANTHROPIC}
"""Whose errors each path gives."""


class Sessions(Protocol):
    """Who is known."""

    def by_id(self, session_id: str) -> GatewaySession | None:
        """The open session of this id."""
        ...

    def by_key(self, key: str) -> GatewaySession | None:
        """The open session with this key."""
        ...


class Application:
    """Answers requests; `sessions` says whose they are."""

    def __init__(self, sessions: Sessions, limits: GatewayLimits, model: str) -> None:
        """`model` is the name that `/v1/models` tells."""
        self._sessions = sessions
        self._limits = limits
        self._model = model
        self.faults = 0
        """Answers with status 500: errors of our own."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """ASGI's entry."""
        if scope["type"] != "http":
            return
        connection = Connection(scope, receive, send, self._limits)
        try:
            session, path = self._whose(connection)
            await self._serve(connection, session, path)
        except asyncio.CancelledError:
            raise
        except GymError as error:
            await self._refuse(connection, error)
        except Exception as error:  # noqa: BLE001 - boundary: one client's request
            self.faults += 1
            await self._refuse(connection, error)

    def _whose(self, connection: Connection) -> tuple[GatewaySession, str]:
        """Whose request it is, and the rest of its path."""
        parts = connection.path.split("/", 3)
        if len(parts) == 4 and parts[1] == "k":
            session = self._sessions.by_key(parts[2])
            path = f"/{parts[3]}"
        elif len(parts) == 4 and parts[1] == "s":
            session = self._sessions.by_id(parts[2])
            if session is not None and not compare_digest(_key(connection), _bytes(session.key)):
                session = None
            path = f"/{parts[3]}"
        else:
            session = self._sessions.by_key(_key(connection).decode("latin-1"))
            path = connection.path
        if session is None:
            raise unauthorized()
        return session, path

    async def _serve(self, connection: Connection, session: GatewaySession, path: str) -> None:
        method = METHODS.get(path)
        if method is None:
            known = ", ".join(METHODS)
            raise Refused(
                f"there is no {path[:80]!r}", fix=f"known: {known}", status=404, code="not_found"
            )
        if connection.method != method:
            raise Refused(
                f"{path} takes {method}, not {connection.method[:20]}",
                fix=f"use {method}",
                status=405,
                code="method_not_allowed",
            )
        if path == MODELS:
            entry = {"id": self._model, "object": "model", "created": 0, "owned_by": "training-gym"}
            await connection.send_json(200, {"object": "list", "data": [entry]})
            return
        body = await connection.body()
        if path == REWARD:
            session.score = _score(read_json(body))
            await connection.send_json(200, {"accepted": True})
            return
        if path == COUNT:
            counted = ANTHROPIC.read_count(read_json(body), session.tolerated)
            length = session.policy.prompt_length(counted.prompt, tools=counted.offered)
            await connection.send_json(200, {"input_tokens": length})
            return
        dialect = DIALECTS[path]
        asked = dialect.read(read_json(body), session.tolerated, session)
        digest = blake2b(path.encode() + b"\n" + body, digest_size=16).digest()
        await answer(connection, session, dialect, asked, digest)

    async def _refuse(self, connection: Connection, error: Exception) -> None:
        if connection.started or connection.gone:
            return
        spoken = (known for end, known in SPOKEN.items() if connection.path.endswith(end))
        dialect = next(spoken, None)
        status, code, headers, param = 400, "invalid_request", {}, None
        if isinstance(error, Refused):
            status, code, param = error.status, error.code, error.param
            if error.retry_after_s is not None:
                headers = {"retry-after": str(error.retry_after_s)}
        elif not isinstance(error, GymError):
            status, code = 500, "internal_error"
        elif error.exit_code in _SERVERS_FAULT:
            status, code = 503, "sampler_failed"
        if isinstance(error, GymError):
            text = f"{error.message}: {error.fix}"
        else:
            text = f"the gateway failed: {type(error).__name__}"
        body = error_body(text, code, param, status, dialect)
        if dialect is not None and dialect.named_errors:
            body["request_id"] = connection.id
        await connection.send_json(status, body, headers)


_SERVERS_FAULT = frozenset((10, 11, 12, 13))
"""Exit codes of errors that no request is the reason of: platform, records, checkpoint, sandbox."""


def error_body(
    text: str, code: str, param: str | None, status: int, dialect: Dialect | None
) -> dict[str, Any]:
    """An error as the dialect's clients read it."""
    if dialect is not None and dialect.named_errors:
        kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
        kind |= {413: "request_too_large", 429: "rate_limit_error", 500: "api_error"}
        kind |= {503: "overloaded_error"}
        found = {"type": kind.get(status, "invalid_request_error"), "message": text}
        return {"type": "error", "error": found}
    kind_of = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": text, "type": kind_of, "param": param, "code": code}}


def _key(connection: Connection) -> bytes:
    given = connection.header("x-api-key") or connection.header("authorization")
    return _bytes(given.removeprefix("Bearer ").strip())


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", "replace")


def _score(body: Any) -> Score:
    try:
        score = Score.read(body)
    except SpecError as error:
        raise Refused(error.message, fix='send {"value": 1.0}') from None
    values = [score.value, *score.components.values()]
    if any(value != value or value in (float("inf"), float("-inf")) for value in values):
        raise Refused("a reward is no finite number", fix='send {"value": 1.0}')
    return score
