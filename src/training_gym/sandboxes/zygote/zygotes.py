"""The zygotes of one provider: one for each image and set of mounts, started at first use."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from training_gym.sandboxes.images.store import ImageStore, Root
from training_gym.sandboxes.zygote.claim import Claim
from training_gym.sandboxes.zygote.launch import PRELOAD, Zygote, launch, program_folders
from training_gym.sandboxes.zygote.owner import group_prefix
from training_gym.spec.sandboxes import Image, Mount

FIRST_UID = 1_900_000_000
"""Host uid of uid 0 in rootful sandboxes; 65,536 follow. Nobody else is likely to own them."""


class Zygotes:
    """Those that live, and those that are being started."""

    def __init__(
        self, claim: Claim, images: ImageStore, *, rootless: bool, uid: int | None
    ) -> None:
        """None are started yet; `uid`: to drop to first."""
        self._claim = claim
        self._images = images
        self._rootless = rootless
        self._uid = uid
        self._starts: dict[tuple[Image, tuple[Mount, ...]], asyncio.Task[tuple[Zygote, Root]]] = {}

    async def get(self, image: Image, mounts: tuple[Mount, ...]) -> tuple[Zygote, Root]:
        """The one for this image and these mounts, started if need be; many callers, one start."""
        key = (image, mounts)
        known = self._starts.get(key)
        if known is not None and known.done():
            failed = known.cancelled() or known.exception() is not None
            if not failed and not known.result()[0].alive:
                known.result()[0].close()
                failed = True
            known = None if failed else known
        if known is None:
            known = self._starts[key] = asyncio.create_task(self._launch(image, mounts))
        elif known.done():
            return known.result()
        return await asyncio.shield(known)

    async def close(self) -> None:
        """End them all."""
        for task in self._starts.values():
            with contextlib.suppress(Exception):
                zygote, _ = await task
                await asyncio.to_thread(zygote.close)
        self._starts.clear()

    async def _launch(self, image: Image, mounts: tuple[Mount, ...]) -> tuple[Zygote, Root]:
        root = await self._images.root(image)
        folder = self._claim.folder
        scratch = folder / f"scratch-{self._claim.new_number()}"
        scratch.mkdir(mode=0o700)
        if self._uid is not None:
            os.chown(scratch, self._uid, self._uid)
        prefix = group_prefix(folder)
        hierarchies = self._claim.groups.hierarchies
        told: dict[str, Any] = {
            "home": str(folder.parent),
            "folder": folder.name,
            "cgroups": [(str(tree.parent), prefix) for tree in hierarchies],
            "rootless": self._rootless,
            "image": str(root.folder or ""),
            "programs": program_folders(self._uid),
            "mounts": [(mount.source, mount.target) for mount in mounts],
            "store": str(folder / "store"),
            "scratch": str(scratch),
            "preload": PRELOAD,
            "first_uid": FIRST_UID,
        }
        return await launch(told, uid=self._uid), root
