"""Where a batch comes from: drawn tasks, played as groups until there are enough."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, Protocol

from training_gym.data import TaskStream
from training_gym.engines.local.groups import Groups
from training_gym.engines.local.rollout import Rollout
from training_gym.engines.local.state import Progress
from training_gym.spec.tasks import Task


class Drawn(NamedTuple):
    """A task, and the number of its draw."""

    task: Task
    visit: int


def draw(tasks: TaskStream, count: int, progress: Progress) -> tuple[list[Drawn], Progress]:
    """The next `count` tasks: first those that an earlier attempt drew and did not learn from."""
    again, later = progress.pending[:count], progress.pending[count:]
    drawn = [Drawn(tasks.named(pending.task), pending.number) for pending in again]
    new = tasks.take(count - len(again))
    drawn += [Drawn(task, progress.drawn + number) for number, task in enumerate(new)]
    return drawn, progress.after(
        drawn=progress.drawn + len(new), pending=later, tasks=tasks.state()
    )


class Collector(Protocol):
    """Collects one batch after another."""

    async def collect(self, progress: Progress) -> tuple[Rollout, Progress]:
        """The next batch, and the position behind it."""
        ...

    def training(self, progress: Progress, to_come: int) -> None:
        """The weights are those of `progress`; `to_come` more updates are made from this batch."""
        ...

    def position(self, progress: Progress) -> Progress:
        """`progress`, standing where the stream of tasks does."""
        ...

    async def close(self) -> None:
        """Give up what is in play."""
        ...


class OnPolicy:
    """Implements `Collector`: what is learned from was sampled by the very policy that learns."""

    def __init__(self, groups: Groups, tasks: TaskStream) -> None:
        """Play `groups` of `tasks`."""
        self._groups = groups
        self._tasks = tasks

    async def collect(self, progress: Progress) -> tuple[Rollout, Progress]:
        """See `Collector`. All groups are played at once, then those that dynamic sampling adds."""
        started = time.monotonic()
        rollout = Rollout()
        while missing := self._groups.missing(rollout):
            drawn, progress = draw(self._tasks, missing, progress)
            plays = (self._groups.play(task, visit, progress) for task, visit in drawn)
            for episodes in await asyncio.gather(*plays):
                self._groups.take_in(rollout, episodes)
        rollout.seconds = rollout.since_last_s = time.monotonic() - started
        return rollout, progress

    def training(self, progress: Progress, to_come: int) -> None:
        """See `Collector`. Nothing is played meanwhile."""

    def position(self, progress: Progress) -> Progress:
        """See `Collector`. `collect` has said it."""
        return progress

    async def close(self) -> None:
        """See `Collector`. Nothing is in play."""
