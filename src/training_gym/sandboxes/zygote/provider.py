"""`local`: sandboxes forked by a zygote on this machine, as root (tier A) or not (tiers B and B2).

The sandboxes of a provider belong to its process: others do not see them, and they die with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_gym.sandboxes.egress import open_egress
from training_gym.sandboxes.images.store import ImageStore, Root
from training_gym.sandboxes.zygote import cgroups
from training_gym.sandboxes.zygote.groups import Groups
from training_gym.sandboxes.zygote.launch import PRELOAD, Zygote, launch, program_folders
from training_gym.sandboxes.zygote.link import receive_ready
from training_gym.sandboxes.zygote.owner import claim_folder, group_prefix
from training_gym.sandboxes.zygote.parts import Parts
from training_gym.sandboxes.zygote.sandbox import LocalSandbox
from training_gym.sandboxes.zygote.store import Store
from training_gym.sandboxes.zygote.watchdog import Watchdog
from training_gym.spec.sandboxes import (
    HostImage,
    Image,
    Mount,
    OutOfMemory,
    SandboxCapabilities,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
    SnapshotImage,
    StartFailed,
    TierReport,
)

FIRST_UID = 1_900_000_000
"""Host uid of uid 0 in rootful sandboxes; 65,536 follow. Nobody else is likely to own them."""
_DESCRIPTORS = 8
"""Open descriptors for each living sandbox, and some to spare."""


class ZygoteProvider:
    """Sandboxes of one zygote tier."""

    name = "local"

    def __init__(
        self, *, rootless: bool | None = None, uid: int | None = None, use_cgroups: bool = True
    ) -> None:
        """What `create` will make.

        Args:
            rootless: None: as root if we are root.
            uid: To drop to first, for rootless sandboxes made by root.
            use_cgroups: False: limits by rlimits and the watchdog only.
        """
        self._rootless = (os.geteuid() != 0 or uid is not None) if rootless is None else rootless
        self._uid = uid
        self._wants_cgroups = use_cgroups and not self._rootless
        self._groups = Groups((), "")
        self._folder: Path | None = None
        self._zygotes: dict[tuple[Image, tuple[Mount, ...]], asyncio.Task[tuple[Zygote, Root]]] = {}
        self._numbers = itertools.count(1)
        self._watchdog = Watchdog()
        self._alive: dict[str, LocalSandbox] = {}
        self._images = ImageStore(None if self._rootless else FIRST_UID)
        self._lacks_proc = False

    # ------------------------------------------------------------ what it is

    @property
    def tier(self) -> str:
        """A, B, or B2 once a sandbox had to go without `/proc`."""
        if not self._rootless:
            return "A"
        return "B2" if self._lacks_proc else "B"

    def capabilities(self) -> SandboxCapabilities:
        """Part of `SandboxProvider`."""
        return SandboxCapabilities(
            snapshots=("files",),
            images=("host", "folder", "oci", "dockerfile", "snapshot"),
            networks=("none", "allowlist", "public"),
            connect=True,
            background=not self._lacks_proc,
            users=("user", "root"),
        )

    async def probe(self) -> Sequence[TierReport]:
        """Part of `SandboxProvider`: makes a sandbox and destroys it."""
        from training_gym.sandboxes.zygote.report import describe

        try:
            async with await self.create(SandboxSpec()) as sandbox:
                return [describe(sandbox.tier, self._groups.controllers)]
        except (StartFailed, SandboxUnsupported) as error:
            return [
                TierReport(
                    tier=self.tier,
                    provider=self.name,
                    works=False,
                    reason=error.message,
                    fix=error.fix,
                )
            ]

    async def image_digest(self, image: Image) -> str:
        """Part of `KnowsImages`."""
        return await self._images.digest(image)

    # ------------------------------------------------------------ making

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> LocalSandbox:
        """Part of `SandboxProvider`."""
        layers: tuple[str, ...] = ()
        image: Image = spec.image
        if isinstance(image, SnapshotImage):
            layer = self._store.find(image.id)
            layers, image = layer.layers, layer.image
        zygote, root = await self._zygote(image, spec.mounts)
        self._make_room()
        group = self._groups.take(spec.resources)
        self._store.use(layers)
        try:
            parts = await self._spawn(zygote, root, spec, group, (layers, image), timeout_s)
        except BaseException:
            self._store.release(layers)
            if group is not None:
                # Something may still be dying in it.
                asyncio.get_running_loop().run_in_executor(None, group.remove)
            raise
        self._lacks_proc |= "proc" in parts.missing
        sandbox = LocalSandbox(self, f"{os.getpid()}-{next(self._numbers)}", spec, self.tier, parts)
        self._alive[sandbox.id] = sandbox
        self._groups.assign(sandbox.id, group)
        sandbox.attach()
        self._guard(sandbox)
        if spec.network.mode != "none":
            try:
                await open_egress(sandbox)
            except BaseException:
                sandbox.kill()
                raise
        return sandbox

    async def _spawn(
        self,
        zygote: Zygote,
        root: Root,
        spec: SandboxSpec,
        group: cgroups.Group | None,
        origin: tuple[tuple[str, ...], Image],
        timeout_s: float,
    ) -> Parts:
        layers, image = origin
        limits = spec.resources
        request = {
            "user": spec.user,
            "disk_mb": limits.disk_mb,
            "files": limits.files,
            "processes": limits.processes,
            "data_mb": 0 if self._controls_memory else limits.memory_mb,
            "layers": layers,
        }
        ours, theirs = socket.socketpair()
        members = group.members if group is not None else ()
        try:
            zygote.spawn(request, [theirs.fileno(), *members])
            theirs.close()
            told, (root_fd, state, handle) = await receive_ready(ours, timeout_s)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        missing = tuple(told["missing"])
        return Parts(ours, root_fd, state, handle, missing, layers, image, root.warm, root.env)

    def _guard(self, sandbox: LocalSandbox) -> None:
        if self._controls_memory:
            return
        limit = sandbox.spec.resources.memory_mb
        error = OutOfMemory(
            f"sandbox {sandbox.id} held more than {limit} MiB and was ended",
            fix="raise resources.memory_mb if it deserves more",
        )
        self._watchdog.watch(sandbox.pid, limit, lambda: sandbox.kill(error))

    def _make_room(self) -> None:
        """Each sandbox holds descriptors: use what the hard limit allows."""
        needed = (len(self._alive) + 1) * _DESCRIPTORS + 200
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and needed > soft:
            wanted = needed * 2 if hard == resource.RLIM_INFINITY else min(needed * 2, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))

    # ------------------------------------------------------------ zygotes

    async def _zygote(self, image: Image, mounts: tuple[Mount, ...]) -> tuple[Zygote, Root]:
        """The one for this image and these mounts, started if need be; many callers, one start."""
        key = (image, mounts)
        known = self._zygotes.get(key)
        if known is not None and known.done():
            failed = known.cancelled() or known.exception() is not None
            if not failed and not known.result()[0].alive:
                known.result()[0].close()
                failed = True
            known = None if failed else known
        if known is None:
            known = self._zygotes[key] = asyncio.create_task(self._launch(image, mounts))
        elif known.done():
            return known.result()
        return await asyncio.shield(known)

    async def _launch(self, image: Image, mounts: tuple[Mount, ...]) -> tuple[Zygote, Root]:
        root = await self._images.root(image)
        self._claim()
        scratch = self._owned / f"scratch-{next(self._numbers)}"
        scratch.mkdir(mode=0o700)
        if self._uid is not None:
            os.chown(scratch, self._uid, self._uid)
        prefix = group_prefix(self._owned)
        told: dict[str, Any] = {
            "home": str(self._owned.parent),
            "folder": self._owned.name,
            "cgroups": [(str(tree.parent), prefix) for tree in self._groups.hierarchies],
            "rootless": self._rootless,
            "image": str(root.folder or ""),
            "programs": program_folders(self._uid),
            "mounts": [(mount.source, mount.target) for mount in mounts],
            "store": str(self._owned / "store"),
            "scratch": str(scratch),
            "preload": PRELOAD,
            "first_uid": FIRST_UID,
        }
        return await launch(told, uid=self._uid), root

    def _claim(self) -> None:
        """Take a folder and find the control groups, at first use."""
        if self._folder is not None:
            return
        hierarchies = cgroups.find() if self._wants_cgroups else []
        self._folder = claim_folder(hierarchies, self._uid)
        self._groups = Groups(hierarchies, group_prefix(self._folder))

    @property
    def _owned(self) -> Path:
        self._claim()
        assert self._folder is not None
        return self._folder

    @property
    def _controls_memory(self) -> bool:
        return "memory" in self._groups.controllers

    @property
    def _store(self) -> Store:
        if not hasattr(self, "_made_store"):
            self._made_store = Store(self._owned / "store")
        return self._made_store

    # ------------------------------------------------------------ what sandboxes need

    def oom_kills(self, sandbox: LocalSandbox) -> int:
        """Part of `Owner`."""
        return self._groups.oom_kills(sandbox.id)

    def ended(self, sandbox: LocalSandbox) -> None:
        """Part of `Owner`."""
        self._alive.pop(sandbox.id, None)
        if not self._controls_memory:
            self._watchdog.forget(sandbox.pid)
        self._groups.release(sandbox.id)
        self._store.release(sandbox.parts.layers)

    async def take_snapshot(self, sandbox: LocalSandbox) -> Snapshot:
        """Part of `Owner`."""
        upper = os.open("upper", os.O_RDONLY | os.O_DIRECTORY, dir_fd=sandbox.parts.state)
        parts = sandbox.parts
        try:
            name = await asyncio.to_thread(self._store.add, upper, parts.layers, parts.image)
        finally:
            os.close(upper)
        size = self._store.find(name).size_bytes
        return Snapshot(id=name, provider=self.name, size_bytes=size)

    async def create_from(self, spec: SandboxSpec, snapshot: Snapshot) -> LocalSandbox:
        """Part of `Owner`."""
        return await self.create(spec.changed(image=snapshot.image))

    async def discard(self, snapshot: Snapshot) -> None:
        """Part of `Owner`."""
        self._store.delete(snapshot.id)

    # ------------------------------------------------------------ the rest of the protocol

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Part of `SandboxProvider`."""
        wanted = dict(tags or {}).items()
        return [box.info for box in self._alive.values() if wanted <= box.spec.tags.items()]

    async def destroy(self, sandbox_id: str) -> None:
        """Part of `SandboxProvider`."""
        if sandbox_id in self._alive:
            await self._alive[sandbox_id].destroy()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Part of `SandboxProvider`."""
        self._store.delete(snapshot_id)

    async def close(self) -> None:
        """Part of `SandboxProvider`."""
        for sandbox in list(self._alive.values()):
            await sandbox.destroy()
        self._watchdog.close()
        for task in self._zygotes.values():
            with contextlib.suppress(Exception):
                zygote, _ = await task
                await asyncio.to_thread(zygote.close)
        self._zygotes.clear()
        if self._folder is None:
            return
        await asyncio.to_thread(self._groups.remove)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._folder = None


__all__ = ["FIRST_UID", "HostImage", "ZygoteProvider"]
