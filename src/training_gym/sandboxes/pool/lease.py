"""A sandbox on loan from a pool: used once, then destroyed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from training_gym.sandboxes.pool.disposal import Started
from training_gym.spec.sandboxes import Sandbox


class Lease:
    """What `SandboxPool.acquire` returns; leave it by `close` or as a context manager."""

    def __init__(
        self,
        started: Started,
        wait_s: float,
        *,
        missed: bool,
        end: Callable[[Started], None],
        again: Callable[[], Awaitable[Lease]],
    ) -> None:
        """Made by a pool."""
        self._started = started
        self._end = end
        self._again = again
        self._closed = False
        self.wait_s = wait_s
        """Seconds the acquire waited."""
        self.missed = missed
        """Whether no spare stood ready."""

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, never handed to anybody else before or after."""
        return self._started.sandbox

    def close(self) -> None:
        """Hand it back to be destroyed, in the background; does nothing the second time."""
        if not self._closed:
            self._closed = True
            self._end(self._started)

    async def replace(self) -> Lease:
        """A fresh one in place of this one, whose sandbox has died.

        For rollouts that died; one that is merely slow should be let finish, or short episodes
        would be favoured.
        """
        self.close()
        return await self._again()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
