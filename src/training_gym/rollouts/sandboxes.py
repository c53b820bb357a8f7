"""The sandboxes of episodes: one warm pool for each provider, opened when it is first needed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from training_gym.sandboxes import registry
from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.sandboxes.pool.pool import SandboxPool
from training_gym.spec.sandboxes import Sandbox, SandboxProvider, SandboxSpec

_PLAIN = SandboxSpec(tags={"purpose": "episode"})


class EpisodeSandboxes:
    """Lends sandboxes to episodes; each is used once."""

    def __init__(
        self,
        find: Callable[[str], SandboxProvider] = registry.find,
        policy: PoolPolicy | None = None,
    ) -> None:
        """Nothing is started yet; `find` makes a provider from its name."""
        self._find = find
        self._policy = policy
        self._lock = asyncio.Lock()
        self._pools: dict[str, SandboxPool] = {}

    @contextlib.asynccontextmanager
    async def lend(
        self, spec: SandboxSpec | None = None, *, provider: str = "local"
    ) -> AsyncIterator[Sandbox]:
        """A fresh sandbox; raises `SandboxError` where there is none to be had."""
        pool = await self._pool(provider)
        lease = await pool.acquire(spec or _PLAIN)
        async with lease:
            yield lease.sandbox

    async def close(self) -> None:
        """End all pools and their providers."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()
            await pool.provider.close()

    async def _pool(self, name: str) -> SandboxPool:
        async with self._lock:
            if name not in self._pools:
                self._pools[name] = await SandboxPool(self._find(name), self._policy).open()
            return self._pools[name]
