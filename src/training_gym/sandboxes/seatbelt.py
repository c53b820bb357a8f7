"""`seatbelt`: tier D, macOS's sandbox-exec, for development. Not tested on a real machine.

A command may read the system and write its own folder; it has no network and cannot signal others.
It is the developer's own user, without limits on memory, disk or processes, and processes that
leave their session outlive their command: grade nothing that matters here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from training_gym.sandboxes.remote.machine import ShellResult
from training_gym.sandboxes.remote.sandbox import RemoteSandbox, open_remote
from training_gym.spec.sandboxes import (
    SandboxCapabilities,
    SandboxDied,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    TierReport,
)

_PROGRAM = "/usr/bin/sandbox-exec"
_READABLE = ("/usr", "/bin", "/sbin", "/System", "/Library", "/opt", "/private/etc", "/dev")


def profile(folder: str) -> str:
    """The policy, in Seatbelt's own language."""
    readable = " ".join(f'(subpath "{path}")' for path in _READABLE)
    return f"""(version 1)
(deny default)
(allow process-fork)
(allow process-exec)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* {readable} (literal "/"))
(allow file-read* file-write* (subpath "{folder}"))
(allow file-write* (literal "/dev/null") (literal "/dev/zero"))
(deny network*)
"""


class Folder:
    """One folder and the policy around it, as `RemoteSandbox` needs it."""

    root = False

    def __init__(self, sandbox_id: str, folder: Path) -> None:
        """`folder` is removed at the end."""
        self.id, self._folder = sandbox_id, folder

    async def run(self, script: str, *, timeout_s: float) -> ShellResult:
        """Run a script under the policy."""
        if not self._folder.exists():
            raise SandboxDied(f"sandbox {self.id} is gone", fix="use a fresh one")
        policy = profile(os.path.realpath(self._folder))
        process = await asyncio.create_subprocess_exec(
            _PROGRAM,
            "-p",
            policy,
            "/bin/sh",
            "-c",
            script,
            cwd=self._folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self._folder), "TMPDIR": str(self._folder)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_s):
                out, _ = await process.communicate()
        except TimeoutError:
            raise SandboxDied(f"sandbox {self.id} does not answer", fix="use a fresh one") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return ShellResult(process.returncode or 0, out.decode("ascii", "replace"))

    async def put(self, path: str, data: bytes) -> None:
        """Write a whole file, by the sandbox's own shell: the host follows no path inside."""
        text = base64.b64encode(data).decode()
        script = f"base64 -d > '{path}' <<'END'\n{text}\nEND\n"
        await self.run(script, timeout_s=60)

    async def snapshot(self, kind: Literal["files", "memory"]) -> str:
        """Not offered."""
        raise SandboxUnsupported("Seatbelt takes no snapshots", fix="copy the files you need")

    async def end(self) -> None:
        """Remove its folder."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class SeatbeltProvider:
    """Sandboxes under Seatbelt policies."""

    name = "seatbelt"

    def __init__(self) -> None:
        """Nothing is started before the first creation."""
        self._alive: dict[str, RemoteSandbox] = {}

    def capabilities(self) -> SandboxCapabilities:
        """The host's programs, no network, no snapshots."""
        return SandboxCapabilities()

    def _check(self) -> None:
        if sys.platform != "darwin" or not os.path.exists(_PROGRAM):
            raise SandboxUnsupported(
                f"Seatbelt is part of macOS; this is {sys.platform}", fix="use provider 'local'"
            )

    async def probe(self) -> Sequence[TierReport]:
        """Part of `SandboxProvider`."""
        try:
            self._check()
        except SandboxError as error:
            return [
                TierReport(
                    tier="D",
                    provider=self.name,
                    works=False,
                    reason=error.message,
                    fix=error.fix,
                )
            ]
        limits = (
            "never tested on a real machine: nothing is guaranteed",
            "no limits on memory, CPU, disk or processes; no kernel of its own",
        )
        return [TierReport(tier="D", provider=self.name, works=True, limits=limits)]

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> RemoteSandbox:
        """Part of `SandboxProvider`."""
        self._check()
        if spec.image.kind != "host" or spec.mounts or spec.network.mode != "none":
            raise SandboxUnsupported(
                "Seatbelt offers the host's programs only: no images, mounts or networks",
                fix="use provider docker or podman",
            )
        folder = Path(tempfile.mkdtemp(prefix="training-gym-seatbelt-"))
        name = f"seatbelt-{secrets.token_hex(6)}"
        sandbox = await open_remote(Folder(name, folder), spec, self)
        sandbox.tier = "D"
        self._alive[name] = sandbox
        return sandbox

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Part of `SandboxProvider`: those of this process."""
        wanted = dict(tags or {}).items()
        return [
            SandboxInfo(id=name, tags=box.spec.tags, created_at=0.0, tier="D")
            for name, box in self._alive.items()
            if wanted <= box.spec.tags.items()
        ]

    async def destroy(self, sandbox_id: str) -> None:
        """Part of `SandboxProvider`."""
        if sandbox_id in self._alive:
            await self._alive.pop(sandbox_id).destroy()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Part of `SandboxProvider`: there are none."""

    async def close(self) -> None:
        """Part of `SandboxProvider`."""
        for name in list(self._alive):
            await self.destroy(name)
