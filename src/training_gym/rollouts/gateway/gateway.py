"""The gateway: a policy behind the interfaces that agents already speak.

```
async with await Gateway.start() as gateway:
    session = gateway.open(policy, sampling=Sampling(max_tokens=256), name="episode-1")
    …  # run a harness with session.openai_url and session.key
    await session.close()
```

It runs in the event loop that starts it: the policies are that loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from hashlib import sha256
from typing import Any, Self

from training_gym.rollouts.gateway.application import Application
from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.rollouts.gateway.sessions import GatewaySession, Turnstile, new_key
from training_gym.rollouts.policy import SamplingPolicy
from training_gym.spec.errors import PlatformError, SpecError
from training_gym.spec.sampling import Sampling

STOP_S = 2.0
"""Seconds that open requests have left when the gateway stops."""
KEEP_ALIVE_S = 300
"""Seconds that an idle connection stays open: harnesses act between their requests."""
BACKLOG = 4096
"""Connections that may wait to be taken up."""


class Gateway:
    """An HTTP server over policies; one session an episode and agent."""

    def __init__(self, limits: GatewayLimits, model: str) -> None:
        """Use `Gateway.start`."""
        self._limits = limits
        self._turnstile = Turnstile(limits)
        self._by_id: dict[str, GatewaySession] = {}
        self._by_key: dict[bytes, GatewaySession] = {}
        self._opened = 0
        self.application = Application(self, limits, model)
        self.url = ""
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: GatewayLimits | None = None,
        model: str = "policy",
    ) -> Self:
        """Listen, on a free port unless one is named.

        Raises `PlatformError` where the address is taken or the web server is not installed.
        """
        gateway = cls(limits or GatewayLimits(), model)
        await gateway._listen(host, port)
        return gateway

    def open(
        self,
        policy: SamplingPolicy,
        *,
        name: str,
        sampling: Sampling,
        pinned: bool = False,
        tolerated: frozenset[str] = frozenset(),
    ) -> GatewaySession:
        """A session for one episode's harness, with a key of its own.

        Args:
            policy: what answers.
            name: shows in addresses and in the ids of answers; made unique.
            sampling: how answers are drawn where a request does not say; `max_tokens` is the
                most that a request can have.
            pinned: draw with `sampling` whatever a request says about temperature, `top_p` and
                `top_k`, as training on the samples needs it; lengths stay the request's.
            tolerated: parameters that may be dropped although they ask for what the sampler
                cannot do (`tool_choice`, `strict`, …). All others are refused.
        """
        self._opened += 1
        safe = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:80] or "session"
        session_id, key = f"{safe}-{self._opened}", new_key()
        session = GatewaySession(
            session_id,
            url=f"{self.url}/s/{session_id}",
            private_url=f"{self.url}/k/{key}",
            key=key,
            policy=policy,
            sampling=sampling,
            limits=self._limits,
            turnstile=self._turnstile,
            pinned=pinned,
            tolerated=tolerated,
            forget=self._forget,
        )
        self._by_id[session_id] = session
        self._by_key[_digest(key)] = session
        return session

    def by_id(self, session_id: str) -> GatewaySession | None:
        """The open session of this id."""
        return self._by_id.get(session_id)

    def by_key(self, key: str) -> GatewaySession | None:
        """The open session with this key; looked up by digest, so that time tells nothing."""
        return self._by_key.get(_digest(key))

    @property
    def num_sessions(self) -> int:
        """Sessions that are open."""
        return len(self._by_id)

    async def stop(self) -> None:
        """Close all sessions and stop listening."""
        for session in list(self._by_id.values()):
            await session.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _forget(self, session: GatewaySession) -> None:
        self._by_id.pop(session.id, None)
        self._by_key.pop(_digest(session.key), None)

    async def _listen(self, host: str, port: int) -> None:
        try:
            import uvicorn
        except ImportError as error:
            raise PlatformError(
                f"the gateway needs {error.name}", fix="pip install 'training-gym[gateway]'"
            ) from error

        config = uvicorn.Config(
            self.application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            date_header=False,
            proxy_headers=False,  # nobody asks where a request comes from
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S,  # type: ignore[arg-type, unused-ignore]
        )
        listener = _socket(host, port)
        self.url = f"http://{host}:{listener.getsockname()[1]}"
        self._server = uvicorn.Server(config)
        self._server.capture_signals = contextlib.nullcontext  # they are the loop owner's
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            if self._serving.done():
                raise PlatformError("the gateway did not start", fix="see the log above")
            await asyncio.sleep(0.005)


def _socket(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise SpecError(f"port {port}", fix="choose one from 1 to 65535, or 0 for a free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's delay off only where the protocol is named. With it, the second part
    # of every answer waits 40 ms for the client to acknowledge the first.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PlatformError(
            f"cannot listen on {host}:{port}: {error.strerror}", fix="choose another port"
        ) from error
    return listener


def _digest(key: str) -> bytes:
    return sha256(key.encode("latin-1", "replace")).digest()
