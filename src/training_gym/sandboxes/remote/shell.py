"""The shell of one remote sandbox, refused once the sandbox was destroyed."""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator

from training_gym.sandboxes.remote import scripts
from training_gym.sandboxes.remote.machine import Machine, ShellResult
from training_gym.spec.sandboxes import MIB, SandboxDied

SHORT_S = 60.0
"""For scripts that only look or tidy."""


class Shell:
    """Runs our scripts in a machine and names the files they work with there."""

    def __init__(self, machine: Machine, token: str) -> None:
        """`token` names the folder that `scripts.prepare` has made."""
        self._machine = machine
        self._control = scripts.control(token)
        self._numbers = itertools.count(1)
        self._ended = False

    @property
    def id(self) -> str:
        """The machine's."""
        return self._machine.id

    @property
    def root(self) -> bool:
        """Whether scripts run as root."""
        return self._machine.root

    def new_folder(self) -> str:
        """Where a command may keep its files."""
        return f"{self._control}/{next(self._numbers)}"

    def new_upload(self) -> str:
        """Where a piece of a file may lie until it is moved to its place."""
        return f"{self._control}/upload-{next(self._numbers)}"

    async def run(self, script: str, *, timeout_s: float = SHORT_S) -> ShellResult:
        """Run a script; raises `SandboxDied`."""
        self.check_alive()
        return await self._machine.run(script, timeout_s=timeout_s)

    async def put(self, path: str, data: bytes) -> None:
        """Write a whole file, as whoever runs the scripts."""
        await self._machine.put(path, data)

    async def pieces(self, path: str, offset: int, size: int) -> AsyncIterator[bytes]:
        """So many bytes of a file, or what there is of them."""
        end = offset + size
        while offset < end:
            got = await self.run(scripts.piece(path, offset, min(MIB, end - offset)))
            data = base64.b64decode(got.output)
            if not data:
                return
            offset += len(data)
            yield data

    async def end(self) -> None:
        """Destroy the machine; one that is destroyed already is fine."""
        if not self._ended:
            await self._machine.end()
            self._ended = True

    def check_alive(self) -> None:
        """Raise `SandboxDied` if it was destroyed."""
        if self._ended:
            raise SandboxDied(f"sandbox {self.id} was destroyed", fix="use a fresh one")
