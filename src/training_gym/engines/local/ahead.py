"""Groups played ahead: while one batch is learned from, those of the next ones are in play.

A group that starts under version v may be learned from by a policy that begins its batch at most
`max_staleness` versions later. Both ends are kept by counting, not by throwing away: no group
starts that could come too late, and no group is taken into a batch if then another one, which is
still being played, could no longer be learned from in time. So a batch is made of groups in the
order in which they end, but it waits for those whose last chance it is: long answers are as likely
to be learned from as short ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from training_gym.data import TaskStream
from training_gym.engines.local.collecting import Drawn, draw
from training_gym.engines.local.groups import Groups
from training_gym.engines.local.rollout import Rollout, oldest_version
from training_gym.engines.local.state import Progress, Visit
from training_gym.spec.episodes import Episode


@dataclass(eq=False)
class Playing:
    """A group in play, or played and not yet learned from."""

    drawn: Drawn
    version: int
    """Of the policy when it started: none of its tokens is older."""
    work: asyncio.Task[list[Episode]]


class Ahead:
    """Implements `Collector` for recipes with `max_staleness` above 0."""

    def __init__(self, groups: Groups, tasks: TaskStream) -> None:
        """Play `groups` of `tasks`; nothing is in play yet."""
        self._groups = groups
        self._recipe = groups.recipe
        self._tasks = tasks
        self._policy = Progress()
        """Whose counters and weights groups start under."""
        self._draws: Progress | None = None
        """Where the stream of tasks stands."""
        self._to_come = 0
        """Updates of the weights before the next batch begins to be learned from."""
        self._places = 0
        """Groups that the next batch still lacks."""
        self._later = 0
        """Batches behind the next."""
        self._refills = False
        self._upcoming: deque[Drawn] = deque()
        self._playing: list[Playing] = []
        self._ended: list[Playing] = []
        self._news = asyncio.Event()
        self._last_end: float | None = None

    async def collect(self, progress: Progress) -> tuple[Rollout, Progress]:
        """See `Collector`. A group beyond the bound is counted, and another takes its place."""
        started = time.monotonic()
        if self._draws is None:
            self._draws = progress
        self._policy, self._to_come, self._refills = progress, 0, True
        self._later = self._recipe.num_steps - progress.batch - 1
        rollout = Rollout()
        while missing := self._groups.missing(rollout):
            self._places = missing
            played = await self._next()
            episodes = [e.changed(counters=progress.counters) for e in played.work.result()]
            version = progress.policy_version
            if version - oldest_version(episodes, version) > self._recipe.max_staleness:
                rollout.stale.extend(episodes)
            else:
                self._groups.take_in(rollout, episodes)
        self._refills = False
        ended = time.monotonic()
        rollout.seconds = ended - started
        rollout.since_last_s = ended - (self._last_end or started)
        self._last_end = ended
        return rollout, progress

    def training(self, progress: Progress, to_come: int) -> None:
        """See `Collector`. As far as the bound allows, groups of the next batches start.

        Behind the last update only those start that can do so at once: then the loop evaluates,
        writes a checkpoint or pauses.
        """
        self._policy, self._to_come, self._refills = progress, to_come, to_come > 0
        self._later = self._recipe.num_steps - progress.batch - 2
        self._places = self._recipe.prompts_per_batch if self._later >= 0 else 0
        self._fill()

    def position(self, progress: Progress) -> Progress:
        """See `Collector`. What is in play counts as drawn and not learned from."""
        if self._draws is None:
            return progress
        open_draws = [*(group.drawn for group in self._playing), *self._upcoming]
        pending = [Visit(task=drawn.task.id, number=drawn.visit) for drawn in open_draws]
        pending.sort(key=lambda visit: visit.number)
        return progress.after(
            drawn=self._draws.drawn,
            tasks=self._draws.tasks,
            pending=(*pending, *self._draws.pending),
        )

    async def close(self) -> None:
        """See `Collector`."""
        self._refills = False
        works = [group.work for group in self._playing]
        self._playing.clear()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _next(self) -> Playing:
        """The group to take in next: of those that have ended, the first that may go first."""
        while True:
            self._fill()
            for group in self._ended:
                others = [other for other in self._playing if other is not group]
                if group.work.exception() or self._in_time(others, self._places - 1):
                    self._ended.remove(group)
                    self._playing.remove(group)
                    return group
            self._news.clear()
            await self._news.wait()

    def _in_time(self, groups: Sequence[Playing], places: int) -> bool:
        """Whether all `groups` can be learned from in time, given `places` left in this batch.

        They can if at most so many have their last chance within n batches as these have places.
        """
        spare = self._recipe.max_staleness - self._policy.policy_version
        chances = sorted((spare + g.version) // self._recipe.updates_per_batch for g in groups)
        wanted = self._recipe.prompts_per_batch
        return all(n < places + later * wanted for n, later in enumerate(chances))

    def _fill(self) -> None:
        """Start as many groups as can be learned from in time, however long they take."""
        spare = self._recipe.max_staleness - self._to_come
        if spare < 0:
            return
        batches = min(spare // self._recipe.updates_per_batch, max(self._later, 0))
        most = self._places + batches * self._recipe.prompts_per_batch
        while len(self._playing) < most:
            self._start()

    def _start(self) -> None:
        if not self._upcoming:
            assert self._draws is not None, "the first batch has begun"
            lot, self._draws = draw(self._tasks, self._recipe.prompts_per_batch, self._draws)
            self._upcoming.extend(lot)
        drawn = self._upcoming.popleft()
        work = asyncio.ensure_future(self._groups.play(drawn.task, drawn.visit, self._policy))
        group = Playing(drawn, self._policy.policy_version, work)
        self._playing.append(group)
        work.add_done_callback(lambda _: self._has_ended(group))

    def _has_ended(self, group: Playing) -> None:
        if group in self._playing:
            self._ended.append(group)
            self._news.set()
            if self._refills:
                self._fill()
