"""The gateway of episodes: started when the first harness wants it, one session an agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

from training_gym.rollouts.gateway.gateway import Gateway
from training_gym.rollouts.gateway.sessions import GatewaySession
from training_gym.rollouts.policy import SamplingPolicy
from training_gym.spec.errors import DriftError, EngineError, ModelError
from training_gym.spec.sampling import Sampling


class EpisodeGateway:
    """Puts policies of episodes behind addresses of this machine."""

    def __init__(self) -> None:
        """Nothing listens yet."""
        self._lock = asyncio.Lock()
        self._gateway: Gateway | None = None

    @contextlib.asynccontextmanager
    async def serve(
        self, policy: SamplingPolicy, *, name: str, tolerated: Collection[str], sampling: Sampling
    ) -> AsyncIterator[GatewaySession]:
        """A session; what ended or broke the policy in it is raised on leaving.

        Answers are drawn with `sampling` whatever requests say, since the loss is computed on that
        distribution; how long they are is the request's affair, up to what `sampling` allows.
        """
        gateway = await self._started()
        session = gateway.open(
            policy, name=name, sampling=sampling, pinned=True, tolerated=frozenset(tolerated)
        )
        try:
            yield session
        finally:
            await session.close()
            if session.ended_by is not None:
                raise session.ended_by
            if isinstance(session.failure, EngineError | ModelError | DriftError):
                raise session.failure

    async def close(self) -> None:
        """Stop listening."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.stop()

    async def _started(self) -> Gateway:
        async with self._lock:
            if self._gateway is None:
                self._gateway = await Gateway.start()
            return self._gateway
