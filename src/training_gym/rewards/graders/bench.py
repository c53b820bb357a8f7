"""Where graders work: fresh sandboxes of one provider, with nothing in them but what is graded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from training_gym.rewards.graders.verdict import Verdict, not_judged
from training_gym.sandboxes import registry
from training_gym.sandboxes.pool import Lease, SandboxPool
from training_gym.spec.errors import SandboxError
from training_gym.spec.sandbox_errors import disposition
from training_gym.spec.sandboxes import (
    HostImage,
    Image,
    Resources,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)
from training_gym.spec.settings import Settings


class BenchSettings(Settings):
    """Which sandboxes to grade in."""

    provider: str = "local"
    """A sandbox provider's name."""
    image: Image = HostImage()
    resources: Resources = Resources()
    concurrency: int = Field(8, ge=1)
    """Submissions judged at once; a submission may take several sandboxes."""


class Bench:
    """Takes fresh sandboxes from a warm pool; one for each grader, in one event loop."""

    def __init__(
        self, settings: BenchSettings, given: SandboxProvider | SandboxPool | None = None
    ) -> None:
        """`given`: whose sandboxes to use, neither closed here; None: a pool of our own."""
        self._settings = settings
        self._given = given
        self._own: SandboxPool | None = None
        self._opening = asyncio.Lock()
        self.room = asyncio.Semaphore(settings.concurrency)

    @contextlib.asynccontextmanager
    async def sandbox(
        self, files: Mapping[str, bytes], *, user: Literal["user", "root"] = "user", **changes: Any
    ) -> AsyncIterator[Sandbox]:
        """A fresh sandbox with these files in its workspace, gone afterwards."""
        spec = SandboxSpec(
            image=self._settings.image,
            resources=self._settings.resources,
            user=user,
            tags={"purpose": "grader"},
            **changes,
        )
        async with await self._take(spec) as sandbox:
            for path, data in files.items():
                await sandbox.write_file(path, data)
            yield sandbox

    async def _take(self, spec: SandboxSpec) -> contextlib.AbstractAsyncContextManager[Sandbox]:
        """One that nobody used before; what is left of it goes while the next is judged."""
        source = self._given or await self._pool()
        if isinstance(source, SandboxPool):
            return _Leased(await source.acquire(spec))
        return await source.create(spec)

    async def aclose(self) -> None:
        """End what is left of our own."""
        if self._own is not None:
            pool, self._own = self._own, None
            await pool.close()
            await pool.provider.close()

    async def _pool(self) -> SandboxPool:
        async with self._opening:
            if self._own is None:
                provider = registry.find(self._settings.provider)
                self._own = await SandboxPool(provider).open()
            return self._own


class _Leased(contextlib.AbstractAsyncContextManager[Sandbox]):
    """A lease, entered as its sandbox."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def __aenter__(self) -> Sandbox:
        return self._lease.sandbox

    async def __aexit__(self, *_: object) -> None:
        self._lease.close()


async def or_none(judge: Callable[[], Any]) -> Verdict:
    """The verdict, or none where the infrastructure failed: missing, never zero."""
    try:
        verdict: Verdict = await judge()
    except SandboxError as error:
        if disposition(error).reward_valid:
            raise
        return not_judged(f"{type(error).__name__}: {error.message}")
    return verdict
