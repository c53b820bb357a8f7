"""Sandboxes whose isolation comes from elsewhere, with our process 1 inside.

An `Enclosure` says how to run a program in isolation; this module puts the keeper into it, which
then speaks with `LocalSandbox` as the zygote's children do: the same commands, streams, files,
background, tunnels and ends, whatever made the walls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_gym.sandboxes.egress import open_egress
from training_gym.sandboxes.enclosure import Enclosed, Enclosure
from training_gym.sandboxes.zygote.launch import ENVIRONMENT, PRELOAD, archive, interpreter
from training_gym.sandboxes.zygote.link import receive_ready
from training_gym.sandboxes.zygote.owner import claim_folder, shared_parent
from training_gym.sandboxes.zygote.parts import Parts
from training_gym.sandboxes.zygote.sandbox import LocalSandbox
from training_gym.sandboxes.zygote.watchdog import Watchdog
from training_gym.spec.sandboxes import (
    HostImage,
    OutOfMemory,
    SandboxCapabilities,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    Snapshot,
    TierReport,
)

_READY_FDS = (3, 5)
"""Where the keeper finds its link and its own source."""


class KeptProvider:
    """The provider over one enclosure."""

    def __init__(self, enclosure: Enclosure) -> None:
        """Nothing is started before the first creation."""
        self._enclosure = enclosure
        self.name = enclosure.name
        self._numbers = itertools.count(1)
        self._alive: dict[str, tuple[LocalSandbox, subprocess.Popen[bytes], Path]] = {}
        self._folder: Path | None = None
        self._watchdog = Watchdog()
        self._ending: set[asyncio.Task[None]] = set()

    def capabilities(self) -> SandboxCapabilities:
        """Part of `SandboxProvider`."""
        return self._enclosure.capabilities()

    async def probe(self) -> Sequence[TierReport]:
        """Part of `SandboxProvider`: makes a sandbox and destroys it."""
        try:
            async with await self.create(SandboxSpec()):
                return [self._enclosure.report()]
        except SandboxError as error:
            return [
                TierReport(
                    tier=self._enclosure.tier,
                    provider=self.name,
                    works=False,
                    reason=error.message,
                    fix=error.fix,
                )
            ]

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> LocalSandbox:
        """Part of `SandboxProvider`."""
        self._refuse_unsupported(spec)
        self._enclosure.check()
        if self._folder is None:
            self._folder = claim_folder((), None, shared_parent())
            self._folder.chmod(0o711)
        number = next(self._numbers)
        folder = self._folder / f"box-{number}"
        folder.mkdir(mode=0o755)
        ours, theirs = socket.socketpair()
        process = None
        try:
            enclosed = self._enclosure.enclose(spec, folder, number)
            told = _describe(spec, enclosed)
            process = await asyncio.to_thread(_start, enclosed, told, theirs.fileno())
            theirs.close()
            _, handles = await receive_ready(ours, timeout_s)
        except BaseException:
            ours.close()
            if process is not None:
                process.kill()
                process.wait()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
        root, state, handle = handles
        parts = Parts(
            link=ours,
            root=root,
            state=state,
            handle=handle,
            missing=(),
            layers=(),
            image=HostImage(),
            warm=not enclosed.command,
            env=enclosed.env,
            workspace=enclosed.workspace,
            root_path=enclosed.root,
            can_connect=self.capabilities().connect,
        )
        name = f"{self.name}-{os.getpid()}-{number}"
        sandbox = LocalSandbox(self, name, spec, self._enclosure.tier, parts)
        self._alive[name] = (sandbox, process, folder)
        sandbox.attach()
        limit = spec.resources.memory_mb
        error = OutOfMemory(
            f"sandbox {name} held more than {limit} MiB and was ended",
            fix="raise resources.memory_mb if it deserves more",
        )
        self._watchdog.watch(process.pid, limit, lambda: sandbox.kill(error))
        try:
            if spec.network.mode != "none":
                await open_egress(sandbox)
        except BaseException:
            sandbox.kill()
            raise
        return sandbox

    def _refuse_unsupported(self, spec: SandboxSpec) -> None:
        can = self.capabilities()
        for what, asked, offered in (
            ("images of kind", spec.image.kind, can.images),
            ("the network", spec.network.mode, can.networks),
            ("commands as", spec.user, can.users),
        ):
            if asked not in offered:
                raise SandboxUnsupported(
                    f"provider {self.name!r} does not offer {what} {asked!r}",
                    fix=f"it offers {', '.join(offered)}; see `training-gym sandbox doctor`",
                )

    # ------------------------------------------------------------ what sandboxes need

    def oom_kills(self, sandbox: LocalSandbox) -> int:
        """Part of `Owner`: the watchdog ends whole sandboxes."""
        return 0

    def ended(self, sandbox: LocalSandbox) -> None:
        """Part of `Owner`."""
        _, process, folder = self._alive.pop(sandbox.id)
        self._watchdog.forget(process.pid)
        task = asyncio.ensure_future(asyncio.to_thread(_clear, process, folder))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def take_snapshot(self, sandbox: LocalSandbox) -> Snapshot:
        """Part of `Owner`."""
        raise SandboxUnsupported(
            f"provider {self.name!r} takes no snapshots",
            fix="use provider 'local' on a tier with namespaces, or copy the files you need",
        )

    async def create_from(self, spec: SandboxSpec, snapshot: Snapshot) -> LocalSandbox:
        """Part of `Owner`."""
        return await self.create(spec)

    async def discard(self, snapshot: Snapshot) -> None:
        """Part of `Owner`."""

    # ------------------------------------------------------------ the rest of the protocol

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Part of `SandboxProvider`."""
        wanted = dict(tags or {}).items()
        return [box.info for box, _, _ in self._alive.values() if wanted <= box.spec.tags.items()]

    async def destroy(self, sandbox_id: str) -> None:
        """Part of `SandboxProvider`."""
        if sandbox_id in self._alive:
            await self._alive[sandbox_id][0].destroy()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Part of `SandboxProvider`: there are none."""

    async def close(self) -> None:
        """Part of `SandboxProvider`."""
        for sandbox, _, _ in list(self._alive.values()):
            await sandbox.destroy()
        self._watchdog.close()
        await asyncio.gather(*self._ending)
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None


def _describe(spec: SandboxSpec, enclosed: Enclosed) -> dict[str, Any]:
    limits = spec.resources
    return {
        "disk_mb": limits.disk_mb,
        "processes": limits.processes,
        "data_mb": limits.memory_mb,
        "preload": PRELOAD if not enclosed.command else (),
        "confines": not enclosed.command,
        "root": enclosed.root,
        "workspace": enclosed.workspace,
        "readable": enclosed.readable,
    }


_TRAMPOLINE = (
    "import fcntl,os,sys;link,source=(fcntl.fcntl(int(x),0,64) for x in sys.argv[1:3]);"
    "os.dup2(link,3);os.dup2(source,5);os.close(4) if os.path.exists('/proc/self/fd/4') else 0;"
    "os.closerange(6,1<<20);os.execv(sys.argv[3],sys.argv[3:])"
)


def _start(enclosed: Enclosed, told: dict[str, Any], link: int) -> subprocess.Popen[bytes]:
    source = os.memfd_create("keeper", 0)
    python = interpreter(enclosed.uid)
    inner = [python, "-I", "-S", f"/proc/self/fd/{_READY_FDS[1]}", json.dumps(told)]
    before = list(enclosed.command)
    identity: dict[str, Any] = {}
    if enclosed.uid is not None:
        identity = {"user": enclosed.uid, "group": enclosed.uid, "extra_groups": []}
    try:
        os.write(source, archive())
        return subprocess.Popen(
            [python, "-I", "-S", "-c", _TRAMPOLINE, str(link), str(source), *before, *inner],
            pass_fds=(link, source),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            **identity,
        )
    finally:
        os.close(source)


def _clear(process: subprocess.Popen[bytes], folder: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.wait(10)
    shutil.rmtree(folder, ignore_errors=True)
