"""`local`: the best tier that works on this machine, found out at first use and then kept."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from training_gym.sandboxes.confined import LandlockProvider
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import (
    Image,
    KnowsImages,
    Sandbox,
    SandboxCapabilities,
    SandboxError,
    SandboxInfo,
    SandboxProvider,
    SandboxSpec,
    SandboxUnsupported,
    TierReport,
)


class LocalProvider:
    """Tier A as root, B or B2 otherwise, C where namespaces are refused.

    The first creation decides, and all later sandboxes are of that tier: results of one run are
    comparable. `only` names tiers to choose from; anything else is then refused.
    """

    name = "local"

    def __init__(self, only: Sequence[str] = ("A", "B", "B2", "C")) -> None:
        """Nothing is started before the first use."""
        self._only = tuple(only)
        self._chosen: SandboxProvider | None = None
        self._choosing = asyncio.Lock()

    def capabilities(self) -> SandboxCapabilities:
        """Of the tier in use; before the first use, of the best one."""
        if self._chosen is not None:
            return self._chosen.capabilities()
        return ZygoteProvider().capabilities()

    async def probe(self) -> Sequence[TierReport]:
        """Part of `SandboxProvider`: tries every tier."""
        reports: list[TierReport] = []
        for provider in self._candidates():
            found = await provider.probe()
            reports += [report.changed(provider=self.name) for report in found]
            await provider.close()
        return reports or [self._unsupported_here()]

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> Sandbox:
        """Part of `SandboxProvider`."""
        provider = self._chosen or await self._choose()
        return await provider.create(spec, timeout_s=timeout_s)

    async def image_digest(self, image: Image) -> str:
        """Part of `KnowsImages`: of the tier in use; empty where it has no such images."""
        provider = self._chosen or await self._choose()
        return await provider.image_digest(image) if isinstance(provider, KnowsImages) else ""

    async def _choose(self) -> SandboxProvider:
        async with self._choosing:
            reasons = []
            for provider in () if self._chosen else self._candidates():
                try:
                    async with await provider.create(SandboxSpec()) as trial:
                        tier = trial.tier
                except SandboxError as error:
                    reasons.append(error.message)
                    await provider.close()
                    continue
                if tier in self._only:
                    self._chosen = provider
                    break
                await provider.close()
            if self._chosen is None:
                told = "; ".join(reasons) or self._unsupported_here().reason
                raise SandboxUnsupported(
                    f"none of the tiers {', '.join(self._only)} works here: {told}",
                    fix="`training-gym sandbox doctor` says why and what to do",
                )
            return self._chosen

    def _candidates(self) -> list[SandboxProvider]:
        if sys.platform != "linux":
            return []
        found: list[SandboxProvider] = []
        if os.geteuid() == 0 and "A" in self._only:
            found.append(ZygoteProvider(rootless=False))
        if {"B", "B2"} & set(self._only):
            found.append(ZygoteProvider(rootless=True))
        if "C" in self._only:
            found.append(LandlockProvider())
        return found

    def _unsupported_here(self) -> TierReport:
        return TierReport(
            tier="A",
            provider=self.name,
            works=False,
            reason=f"{sys.platform} has no Linux namespaces",
            fix="use provider seatbelt, docker or podman, or a remote one",
        )

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Part of `SandboxProvider`."""
        return await self._chosen.list(tags) if self._chosen else []

    async def destroy(self, sandbox_id: str) -> None:
        """Part of `SandboxProvider`."""
        if self._chosen:
            await self._chosen.destroy(sandbox_id)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Part of `SandboxProvider`."""
        if self._chosen:
            await self._chosen.delete_snapshot(snapshot_id)

    async def close(self) -> None:
        """Part of `SandboxProvider`."""
        if self._chosen:
            await self._chosen.close()
            self._chosen = None
