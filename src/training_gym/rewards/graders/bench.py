"""Where graders work: fresh sandboxes of one provider, with nothing in them but what is graded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

from training_gym.rewards.graders.verdict import Verdict, not_judged
from training_gym.sandboxes import registry
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
    concurrency: int = 8
    """Submissions judged at once; a submission may take several sandboxes."""


class Bench:
    """Makes sandboxes and ends them; one for each grader, in one event loop."""

    def __init__(self, settings: BenchSettings, provider: SandboxProvider | None = None) -> None:
        """The provider is found by its name unless one is given."""
        self._settings = settings
        self._given = provider
        self._own: SandboxProvider | None = None
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
        sandbox = await self._provider().create(spec)
        try:
            for path, data in files.items():
                await sandbox.write_file(path, data)
            yield sandbox
        finally:
            await sandbox.destroy()

    async def aclose(self) -> None:
        """End what is left, if the provider is ours."""
        if self._own is not None:
            await self._own.close()
            self._own = None

    def _provider(self) -> SandboxProvider:
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = registry.find(self._settings.provider)
        return self._own


async def or_none(judge: Callable[[], Any]) -> Verdict:
    """The verdict, or none where the infrastructure failed: missing, never zero."""
    try:
        verdict: Verdict = await judge()
    except SandboxError as error:
        if disposition(error).reward_valid:
            raise
        return not_judged(f"{type(error).__name__}: {error.message}")
    return verdict
