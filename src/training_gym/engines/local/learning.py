"""One batch of reinforcement learning: play groups, turn scores into advantages, update."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from training_gym.algorithms.advantages import overlong_penalty
from training_gym.data import TaskStream
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.credit import (
    Credited,
    Group,
    credit,
    training_batch,
    trajectories_of,
    with_advantages,
)
from training_gym.engines.local.measures import over_updates
from training_gym.engines.local.objectives import columns_before_training
from training_gym.engines.local.rollout import Rollout, longest_answer, rollout_metrics
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.state import Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.engines.local.translation import Translation, teacher_advantages
from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.evaluation import Judge
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.spec.algorithms import DAPO, Distill, GroupCompared, PolicyAlgorithm
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Sampling, WeightUpdate
from training_gym.spec.tasks import Task


class PolicyLearner:
    """Learns from its own episodes."""

    def __init__(
        self,
        recipe: Recipe,
        algorithm: PolicyAlgorithm | Distill,
        *,
        tasks: TaskStream,
        runner: EpisodeRunner,
        judge: Judge,
        sampler: LocalSampler,
        trainer: LocalTrainer,
        compute: Compute,
        on_episode: Callable[[Episode], None],
        translation: Translation | None = None,
    ) -> None:
        """`on_episode` records every episode that was played.

        `translation` goes with a teacher that has another tokenizer.
        """
        self._recipe = recipe
        self._algorithm = algorithm
        self._tasks = tasks
        self._runner = runner
        self._judge = judge
        self._sampler = sampler
        self._trainer = trainer
        self._compute = compute
        self._on_episode = on_episode
        self._translation = translation

    async def learn(self, progress: Progress) -> tuple[Progress, dict[str, float]]:
        """Collect one batch and update the weights from it."""
        prefilled = self._sampler.statistics.prefilled_tokens
        rollout, progress = await self._collect(progress)
        for episode in rollout.episodes:
            self._on_episode(episode)
        refuse_if_all_failed(rollout.episodes)
        prefilled = self._sampler.statistics.prefilled_tokens - prefilled
        metrics = rollout_metrics(rollout) | {"prefilled_tokens": float(prefilled)}
        if rollout.groups:
            progress, measured = await self._train(rollout.groups, progress)
            metrics |= measured
        return progress.after(batch=progress.batch + 1, tasks=self._tasks.state()), metrics

    async def _train(
        self, groups: Sequence[Group], progress: Progress
    ) -> tuple[Progress, dict[str, float]]:
        """Every update the recipe makes from one batch; the metrics of all of them as one."""
        credited = await self._compute.run(self._credited, groups)
        passes = 1 if isinstance(self._algorithm, Distill) else self._algorithm.passes
        parts = _minibatches(credited, self._recipe.optimizer_steps_per_batch)
        updates = []
        for part in parts * passes:
            updates.append(await self._compute.run(self._trainer.step, training_batch(part)))
            version = progress.policy_version + 1
            await self._sampler.update_weights(
                WeightUpdate(version=version, base_version=progress.policy_version)
            )
            progress = progress.after(
                optimizer_step=progress.optimizer_step + 1, policy_version=version
            )
        return progress, over_updates(updates)

    def _credited(self, groups: Sequence[Group]) -> list[list[Credited]]:
        """Each group's trajectories with what its tokens are credited with."""
        needed = columns_before_training(self._recipe)
        columns = self._trainer.annotate(trajectories_of(groups)) if needed else {}
        if not isinstance(self._algorithm, Distill):
            return credit(groups, self._algorithm, columns)
        if self._translation is not None:
            return with_advantages(groups, self._translation.advantages(groups), columns)
        return with_advantages(groups, teacher_advantages(groups, columns), columns)

    async def _collect(self, progress: Progress) -> tuple[Rollout, Progress]:
        started = time.monotonic()
        rollout = Rollout()
        wanted = self._recipe.prompts_per_batch
        for _ in range(1 + self._resampled_batches):
            missing = wanted - len(rollout.groups)
            tasks = self._tasks.take(missing)
            groups = await asyncio.gather(
                *(
                    self._play(task, progress, progress.drawn + index)
                    for index, task in enumerate(tasks)
                )
            )
            progress = progress.after(drawn=progress.drawn + len(tasks))
            for episodes in groups:
                self._take_in(rollout, episodes)
            if len(rollout.groups) >= wanted:
                break
        rollout.seconds = time.monotonic() - started
        return rollout, progress

    @property
    def _resampled_batches(self) -> int:
        """How often groups that teach nothing are replaced by others."""
        if isinstance(self._algorithm, DAPO) and self._algorithm.dynamic_sampling:
            return self._algorithm.max_resampled_batches
        return 0

    async def _play(self, task: Task, progress: Progress, visit: int) -> list[Episode]:
        group = f"{progress.batch}-{visit}"
        attempts = [
            Attempt(task, member, visit, "train", group)
            for member in range(self._recipe.group_size)
        ]
        sampling = training_sampling(self._recipe)
        episodes = await self._runner.play_group(attempts, sampling, progress.counters)
        return await self._judge(episodes)

    def _take_in(self, rollout: Rollout, episodes: list[Episode]) -> None:
        kept = [episode for episode in episodes if self._teaches(episode)]
        group = Group(kept, [self._shaped(episode) for episode in kept])
        rollout.episodes.extend(episodes)
        rollout.num_dropped += len(episodes) - len(kept)
        rollout.num_groups += 1
        rollout.num_equal_groups += not group.informative
        if kept and (group.informative or not self._skips_equal_groups):
            rollout.groups.append(group)

    @property
    def _skips_equal_groups(self) -> bool:
        """Others than those that compare within groups learn from equal rewards too."""
        algorithm = self._algorithm
        return isinstance(algorithm, GroupCompared) and algorithm.skip_equal_groups

    def _teaches(self, episode: Episode) -> bool:
        """Whether an episode has what the algorithm learns from; a teacher needs no score."""
        if isinstance(self._algorithm, Distill):
            failed = episode.outcome.status == "infrastructure_failed"
            return bool(episode.trajectories) and not failed
        return bool(episode.score and episode.trajectories)

    def _shaped(self, episode: Episode) -> float:
        """The reward that advantages are computed from."""
        value = 0.0 if episode.score is None else episode.score.value
        if not isinstance(self._algorithm, DAPO):
            return value
        limit = training_sampling(self._recipe).max_tokens
        assert limit is not None
        return value + overlong_penalty(
            longest_answer(episode),
            limit,
            self._algorithm.overlong_buffer_tokens,
            self._algorithm.overlong_penalty,
        )


def refuse_if_all_failed(episodes: Sequence[Episode]) -> None:
    """Raise `EnvironmentFailure` where no episode of a batch could be played.

    What fails here and there is dropped; what fails everywhere would use up the steps of the run
    and end as if it had been trained.
    """
    if episodes and all(e.outcome.status == "infrastructure_failed" for e in episodes):
        raise EnvironmentFailure(
            f"each of the {len(episodes)} episodes of a batch failed; "
            f"last: {episodes[-1].outcome.reason or 'no reason given'}",
            fix="mend the environment, or what it depends on",
        )


def _minibatches(credited: Sequence[list[Credited]], count: int) -> list[list[Credited]]:
    """Groups dealt out to `count` updates; fewer where there are fewer groups."""
    dealt = [credited[start::count] for start in range(min(count, len(credited)))]
    return [[row for group in part for row in group] for part in dealt]


def training_sampling(recipe: Recipe) -> Sampling:
    """How training episodes are sampled, with the answer's length filled in."""
    if recipe.sampling.max_tokens is not None:
        return recipe.sampling
    return recipe.sampling.changed(max_tokens=recipe.max_response_tokens)
