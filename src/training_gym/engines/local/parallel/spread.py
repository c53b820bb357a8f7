"""A sampler over several processes: each session is served by one of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from training_gym.engines.local.drawing import SamplerStatistics
from training_gym.engines.local.parallel.ranks import Asked, Rank
from training_gym.engines.local.sampler import LocalSampler
from training_gym.spec.sampling import Completion, Prompt, SampleKey, Sampling, WeightUpdate


class SpreadSampler:
    """Implements `spec.sampling.Sampler` over the leader's own sampler and those of the others.

    Sessions are dealt out in the order in which they come. In deterministic mode that order, and
    with it what is computed together, is the same in every repetition: what is asked within one
    turn of the event loop is heard by each process at once.
    """

    def __init__(self, own: LocalSampler, ranks: Sequence[Rank]) -> None:
        """Serve from `own` and from the samplers of `ranks`."""
        self._own = own
        self._ranks = ranks
        self._places: dict[str, int] = {}
        self._dealt = 0
        self._numbers = 0
        self._outgoing: dict[int, list[tuple[Asked, asyncio.Future[Any]]]] = {}
        self._prefilled = [0] * len(ranks)

    @property
    def statistics(self) -> SamplerStatistics:
        """Of all processes; steps and busy time are the leader's own."""
        own = self._own.statistics
        return SamplerStatistics(
            prefilled_tokens=own.prefilled_tokens + sum(self._prefilled),
            steps=own.steps,
            busy_seconds=own.busy_seconds,
        )

    @property
    def version(self) -> int:
        """Of the weights."""
        return self._own.version

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        *,
        session: str | None = None,
        adapter: str | None = None,
    ) -> Completion:
        """See `spec.sampling.Sampler`."""
        place = self._places.get(session or "", 0)
        if place == 0:
            return await self._own.generate(prompt, sampling, key, session=session, adapter=adapter)
        number, self._numbers = self._numbers, self._numbers + 1
        asked = ("generate", (number, prompt, sampling, key, session, adapter))
        try:
            completion, prefilled = await self._say(place, asked)
        except asyncio.CancelledError:
            self._say(place, ("cancel", (number,)))
            raise
        self._prefilled[place - 1] = max(prefilled, self._prefilled[place - 1])
        return completion  # type: ignore[no-any-return]

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `spec.sampling.Sampler`."""
        return await self._own.score(sequences)

    async def update_weights(self, update: WeightUpdate) -> None:
        """See `spec.sampling.Sampler`: every process takes up what its trainer has changed."""
        await asyncio.gather(
            self._own.update_weights(update), *self._to_all("update_weights", update)
        )

    def take_up(self, version: int) -> None:
        """See `LocalSampler.take_up`; the other processes did so when their trainer had stepped."""
        self._own.take_up(version)

    async def forget(self) -> None:
        """See `LocalSampler.forget`."""
        await asyncio.gather(self._own.forget(), *self._to_all("forget"))

    async def end_session(self, session: str) -> None:
        """See `spec.sampling.Sampler`."""
        await self._own.end_session(session)

    @contextlib.asynccontextmanager
    async def presence(self, session: str) -> AsyncIterator[None]:
        """See `LocalSampler.presence`; a session stays with its process while it is in play."""
        place = self._dealt % (len(self._ranks) + 1)
        self._dealt += 1
        self._places[session] = place
        try:
            if place == 0:
                async with self._own.presence(session):
                    yield
                return
            self._say(place, ("enter", (session,)))
            try:
                yield
            finally:
                self._say(place, ("leave", (session,)))
        finally:
            del self._places[session]
            if not self._places:
                self._dealt = 0

    async def close(self) -> None:
        """Stop the leader's own sampler; the others end with their processes."""
        await self._own.close()

    def _to_all(self, name: str, *given: Any) -> list[asyncio.Future[Any]]:
        return [self._say(rank.rank, (name, given)) for rank in self._ranks]

    def _say(self, place: int, asked: Asked) -> asyncio.Future[Any]:
        """Ask a process for something at the end of this turn of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if place not in self._outgoing:
            self._outgoing[place] = []
            loop.call_soon(self._deliver, place)
        self._outgoing[place].append((asked, future))
        return future

    def _deliver(self, place: int) -> None:
        letters = self._outgoing.pop(place)
        answers = self._ranks[place - 1].ask(*(asked for asked, _ in letters))
        for (_, future), answer in zip(letters, answers, strict=True):
            _hand_on(answer, future)


def _hand_on(answer: Any, future: asyncio.Future[Any]) -> None:
    """Let what a thread hears about `answer` reach `future` in its own loop."""
    loop = future.get_loop()

    def told(done: Any) -> None:
        def settle() -> None:
            if future.done():
                return
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)
                future.exception()  # whoever waits hears it; what nobody waits for is no warning

        loop.call_soon_threadsafe(settle)

    answer.add_done_callback(told)
