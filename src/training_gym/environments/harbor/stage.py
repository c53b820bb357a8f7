"""Where trials take place: each environment is built once, sandboxes of it are ready early.

A build belongs to nobody: who wants an environment that is being built waits for it, and one that
failed or was given up is built by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

from training_gym.environments.harbor.build import Base, BuiltEnvironment, build_environment
from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.sandboxes.pool.pool import SandboxPool
from training_gym.spec.sandboxes import Network, Resources, Sandbox, SandboxProvider, SandboxSpec

WARM = PoolPolicy(forget_after_s=60.0)
"""A data set has many tasks, and each is another kind: spares of one are soon of no use."""


class Stage:
    """Images and sandboxes of one provider, for many trials, until closed.

    The provider stays its caller's. Snapshots are its own, hence images and sandboxes must be too.
    """

    def __init__(self, provider: SandboxProvider, *, warm: PoolPolicy | None = None) -> None:
        """Nothing is started yet; with `warm` there are spares of every kind in use."""
        self.provider = provider
        self._warm = warm
        self._pool: SandboxPool | None = None
        self._opening = asyncio.Lock()
        self._built: dict[str, BuiltEnvironment] = {}
        self._building: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def environment(
        self,
        folder: Path,
        *,
        docker_image: str | None,
        base: Base,
        network: Network,
        resources: Resources,
        timeout_s: float,
    ) -> BuiltEnvironment:
        """That environment, built if it is not yet; raises as `build_environment`."""
        limits = f"{network.model_dump_json()} {resources.model_dump_json()}"
        key = f"{folder} {docker_image} {base} {limits}"
        async with self._building[key]:
            if key not in self._built:
                self._built[key] = await build_environment(
                    self.provider,
                    folder,
                    docker_image=docker_image,
                    base=base,
                    network=network,
                    resources=resources,
                    timeout_s=timeout_s,
                )
            return self._built[key]

    @contextlib.asynccontextmanager
    async def sandbox(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """A sandbox nobody used before, destroyed afterwards."""
        if self._warm is None:
            async with await self.provider.create(spec) as sandbox:
                yield sandbox
            return
        async with await (await self._opened(self._warm)).acquire(spec) as lease:
            yield lease.sandbox

    async def close(self) -> None:
        """End its sandboxes, then free the images that were made."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        built, self._built = self._built, {}
        for each in built.values():
            if each.snapshot is not None:
                await self.provider.delete_snapshot(each.snapshot)

    async def _opened(self, policy: PoolPolicy) -> SandboxPool:
        async with self._opening:
            if self._pool is None:
                self._pool = await SandboxPool(self.provider, policy).open()
            return self._pool
