"""`local`: sandboxes forked by a zygote on this machine, as root (tier A) or not (tiers B and B2).

The sandboxes of a provider belong to its process: others do not see them, and they die with it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Mapping, Sequence

from training_gym.sandboxes.egress import open_egress
from training_gym.sandboxes.images.store import ImageStore, Root
from training_gym.sandboxes.zygote import cgroups
from training_gym.sandboxes.zygote.claim import Claim
from training_gym.sandboxes.zygote.launch import Zygote
from training_gym.sandboxes.zygote.link import receive_ready
from training_gym.sandboxes.zygote.parts import Parts
from training_gym.sandboxes.zygote.sandbox import LocalSandbox
from training_gym.sandboxes.zygote.watchdog import Watchdog
from training_gym.sandboxes.zygote.zygotes import FIRST_UID, Zygotes
from training_gym.spec.sandboxes import (
    Image,
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
        self._claim = Claim(uid=uid, use_cgroups=use_cgroups and not self._rootless)
        self._images = ImageStore(None if self._rootless else FIRST_UID)
        self._zygotes = Zygotes(self._claim, self._images, rootless=self._rootless, uid=uid)
        self._watchdog = Watchdog()
        self._alive: dict[str, LocalSandbox] = {}
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
                return [describe(sandbox.tier, self._claim.groups.controllers)]
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
            layer = self._claim.store.find(image.id)
            layers, image = layer.layers, layer.image
        zygote, root = await self._zygotes.get(image, spec.mounts)
        self._make_room()
        group = self._claim.groups.take(spec.resources)
        self._claim.store.use(layers)
        try:
            parts = await self._spawn(zygote, root, spec, group, (layers, image), timeout_s)
        except BaseException:
            self._claim.store.release(layers)
            if group is not None:
                # Something may still be dying in it.
                asyncio.get_running_loop().run_in_executor(None, group.remove)
            raise
        self._lacks_proc |= "proc" in parts.missing
        sandbox = LocalSandbox(
            self, f"{os.getpid()}-{self._claim.new_number()}", spec, self.tier, parts
        )
        self._alive[sandbox.id] = sandbox
        self._claim.groups.assign(sandbox.id, group)
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
            "data_mb": 0 if self._claim.controls_memory else limits.memory_mb,
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
        if self._claim.controls_memory:
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

    # ------------------------------------------------------------ what sandboxes need

    def oom_kills(self, sandbox: LocalSandbox) -> int:
        """Part of `Owner`."""
        return self._claim.groups.oom_kills(sandbox.id)

    def ended(self, sandbox: LocalSandbox) -> None:
        """Part of `Owner`."""
        self._alive.pop(sandbox.id, None)
        if not self._claim.controls_memory:
            self._watchdog.forget(sandbox.pid)
        self._claim.groups.release(sandbox.id)
        self._claim.store.release(sandbox.parts.layers)

    async def take_snapshot(self, sandbox: LocalSandbox) -> Snapshot:
        """Part of `Owner`."""
        upper = os.open("upper", os.O_RDONLY | os.O_DIRECTORY, dir_fd=sandbox.parts.state)
        parts = sandbox.parts
        try:
            name = await asyncio.to_thread(self._claim.store.add, upper, parts.layers, parts.image)
        finally:
            os.close(upper)
        size = self._claim.store.find(name).size_bytes
        return Snapshot(id=name, provider=self.name, size_bytes=size)

    async def create_from(self, spec: SandboxSpec, snapshot: Snapshot) -> LocalSandbox:
        """Part of `Owner`."""
        return await self.create(spec.changed(image=snapshot.image))

    async def discard(self, snapshot: Snapshot) -> None:
        """Part of `Owner`."""
        self._claim.store.delete(snapshot.id)

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
        self._claim.store.delete(snapshot_id)

    async def close(self) -> None:
        """Part of `SandboxProvider`."""
        for sandbox in list(self._alive.values()):
            await sandbox.destroy()
        self._watchdog.close()
        await self._zygotes.close()
        await self._claim.give_up()
