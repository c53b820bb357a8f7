"""A container engine by its command line, and one container of it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from typing import Literal

from training_gym.sandboxes.remote.machine import ShellResult, refusal
from training_gym.spec.sandboxes import (
    SandboxDied,
    SandboxFileError,
    SandboxUnsupported,
    StartFailed,
    StartTimeout,
)

_COMMAND_S = 60.0


class Engine:
    """The command line of a container engine."""

    def __init__(self, name: str) -> None:
        """`docker` or `podman`."""
        self.name = name

    def check(self) -> None:
        """Raise `SandboxUnsupported` where it cannot work."""
        if shutil.which(self.name) is None:
            raise SandboxUnsupported(
                f"{self.name} is not installed",
                fix=f"install it, such as apt-get install {self.name}",
            )

    async def call(
        self, *words: str, stdin: bytes = b"", timeout_s: float = _COMMAND_S
    ) -> tuple[int, bytes, str]:
        """Run a command; returns exit code, stdout and stderr. Raises `StartTimeout`."""
        self.check()
        process = await asyncio.create_subprocess_exec(
            self.name,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            raise StartTimeout(
                f"{self.name} {words[0]} took longer than {timeout_s:g} s",
                fix=f"see whether `{self.name} info` answers",
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return process.returncode or 0, out, err.decode("utf-8", "replace").strip()

    async def need(self, *words: str, stdin: bytes = b"", timeout_s: float = _COMMAND_S) -> bytes:
        """The same, where failing means that no sandbox can start: raises `StartFailed`."""
        code, out, err = await self.call(*words, stdin=stdin, timeout_s=timeout_s)
        if code:
            last = err.splitlines()[-1] if err else f"exit code {code}"
            raise refusal(self.name, last) or StartFailed(
                f"{self.name} {words[0]}: {last[-300:]}",
                fix=f"try `{self.name} {words[0]}` by hand; is its service running?",
            )
        return out


class Container:
    """One container, as `RemoteSandbox` needs it."""

    root = False

    def __init__(self, engine: Engine, container_id: str, *, root: bool) -> None:
        """`root`: whether its commands run as uid 0."""
        self._engine, self.id = engine, container_id
        self.root = root

    async def run(self, script: str, *, timeout_s: float) -> ShellResult:
        """Run a script with the container's `sh`."""
        code, out, err = await self._engine.call(
            "exec", "-i", self.id, "sh", stdin=script.encode(), timeout_s=timeout_s
        )
        # Both engines tell that the container is not there by these codes and a message of theirs.
        if code in (1, 125, 126) and ("no such container" in err.lower() or "not running" in err):
            raise SandboxDied(f"container {self.id} is gone: {err[-200:]}", fix="use a fresh one")
        return ShellResult(code, out.decode("ascii", "replace"))

    async def put(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        write = ("exec", "-i", self.id, "sh", "-c", 'cat > "$1"', "sh", path)
        code, _, err = await self._engine.call(*write, stdin=data)
        if code and ("no such container" in err.lower() or "not running" in err):
            raise SandboxDied(f"container {self.id} is gone: {err[-200:]}", fix="use a fresh one")
        if code:
            raise SandboxFileError(
                f"{path!r} cannot be written: {err[-200:]}", fix="check the path"
            )

    async def snapshot(self, kind: Literal["files", "memory"]) -> str:
        """Commit its files as an image."""
        if kind == "memory":
            raise SandboxUnsupported(
                f"{self._engine.name} freezes files only", fix="use kind='files'"
            )
        name = f"localhost/training-gym-snapshot:{secrets.token_hex(8)}"
        await self._engine.need("commit", self.id, name)
        return name

    async def end(self) -> None:
        """Remove it."""
        await self._engine.call("rm", "-f", self.id)
