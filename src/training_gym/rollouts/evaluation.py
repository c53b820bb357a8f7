"""The core of evaluation: play every task, score, and keep one mean per task."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.statistics import Interval, bootstrap_mean
from training_gym.spec.episodes import Counters, Episode
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task

Judge = Callable[[Sequence[Episode]], Awaitable[list[Episode]]]
"""Episodes of one group -> the same with scores, where they could be judged."""


@dataclass(frozen=True)
class Evaluated:
    """What one evaluation found."""

    name: str
    episodes: list[Episode]
    task_means: dict[str, float]
    """Mean score of each task that could be judged."""
    num_missing: int
    """Episodes without a score: left out, never counted as zero."""

    @property
    def interval(self) -> Interval:
        """Mean over tasks with its 95 % interval."""
        return bootstrap_mean(list(self.task_means.values()))

    @property
    def component_means(self) -> dict[str, float]:
        """Mean of each component over the judged episodes."""
        found: dict[str, list[float]] = {}
        for episode in self.episodes:
            if episode.score is not None:
                for name, value in episode.score.components.items():
                    found.setdefault(name, []).append(value)
        return {name: math.fsum(values) / len(values) for name, values in found.items()}


async def evaluate(
    name: str,
    tasks: Sequence[Task],
    runner: EpisodeRunner,
    judge: Judge,
    *,
    samples: int,
    sampling: Sampling,
    counters: Counters,
) -> Evaluated:
    """Play `samples` episodes of every task side by side.

    The random numbers depend on the evaluation's name and the task, not on when it happens:
    the same policy gives the same episodes, and differences between two policies are paired.
    """

    async def one(task: Task) -> list[Episode]:
        group = f"{name}-{counters.optimizer_step or 0}-{task.id}"
        attempts = [Attempt(task, member, 0, f"eval:{name}", group) for member in range(samples)]
        return await judge(await runner.play_group(attempts, sampling, counters))

    groups = await asyncio.gather(*(one(task) for task in tasks))
    means = {}
    for task, episodes in zip(tasks, groups, strict=True):
        values = [episode.score.value for episode in episodes if episode.score is not None]
        if values:
            means[task.id] = math.fsum(values) / len(values)
    episodes = [episode for group in groups for episode in group]
    missing = sum(episode.score is None for episode in episodes)
    return Evaluated(name, episodes, means, missing)
