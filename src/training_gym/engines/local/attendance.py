"""Which episodes are in play, and when a step is due that depends on no clock.

What samplers compute together decides its bits. So in deterministic mode a step is taken only while
every episode in play waits for some sampler, and of several samplers with work the first takes it:
then what each has been asked follows from what was drawn so far, and from nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Protocol


class Attended(Protocol):
    """A sampler as the others see it."""

    def waiting_sessions(self) -> Iterable[str | None]:
        """Whose requests are not answered yet."""
        ...

    async def forget_own(self) -> None:
        """Drop what is warm."""
        ...


class Attendance:
    """The episodes in play, and the samplers that serve them."""

    def __init__(self) -> None:
        """Nobody is there yet."""
        self._present: set[str] = set()
        self._samplers: list[Attended] = []
        self._wake = asyncio.Event()

    def join(self, sampler: Attended) -> None:
        """One more sampler; where several have work, the one that joined last comes first."""
        self._samplers.insert(0, sampler)

    def leave(self, sampler: Attended) -> None:
        """The sampler takes no more requests."""
        self._samplers = [other for other in self._samplers if other is not sampler]
        self._wake.set()

    async def forget(self) -> None:
        """Drop what is warm in all samplers."""
        for sampler in self._samplers:
            await sampler.forget_own()

    @contextlib.asynccontextmanager
    async def presence(self, session: str) -> AsyncIterator[None]:
        """Say that an episode is in play."""
        self._present.add(session)
        try:
            yield
        finally:
            self._present.discard(session)
            self._wake.set()

    def changed(self) -> None:
        """A request has come or gone, or a step was taken: whoever waits looks again."""
        self._wake.set()

    async def turn(self, sampler: Attended) -> None:
        """Return once a step of this sampler is due."""
        while True:
            await asyncio.sleep(0)
            if self._is_due(sampler):
                return
            self._wake.clear()
            await self._wake.wait()

    def _is_due(self, sampler: Attended) -> bool:
        asking = [(other, set(other.waiting_sessions())) for other in self._samplers]
        blocked = set().union(*(sessions for _, sessions in asking))
        if not self._present <= blocked:
            return False
        first = next((other for other, sessions in asking if sessions), sampler)
        return first is sampler
