"""One batch of reinforcement learning: play groups, turn scores into advantages, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training_gym.data import TaskStream
from training_gym.engines.local.ahead import Ahead
from training_gym.engines.local.collecting import Collector, OnPolicy
from training_gym.engines.local.columns import ColumnRecorder, record_columns
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.credit import (
    Credited,
    Group,
    credit,
    training_batch,
    trajectories_of,
    with_advantages,
)
from training_gym.engines.local.drawing import RunSampler
from training_gym.engines.local.groups import Groups
from training_gym.engines.local.measures import over_updates, same_policy_metrics
from training_gym.engines.local.meters import Meter
from training_gym.engines.local.objectives import columns_before_training
from training_gym.engines.local.parts import Parts
from training_gym.engines.local.rollout import Rollout, lag_metrics, rollout_metrics
from training_gym.engines.local.state import Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.engines.local.translation import Translation, teacher_advantages
from training_gym.rollouts.evaluation import Judge
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.spec.algorithms import Distill, PolicyAlgorithm
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import WeightUpdate


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
        sampler: RunSampler,
        trainer: LocalTrainer,
        compute: Compute,
        on_episode: Callable[[Episode], None],
        on_stale: Callable[[Episode], None] = lambda _: None,
        columns: ColumnRecorder | None = None,
        meter: Meter | None = None,
        translation: Translation | None = None,
    ) -> None:
        """`on_episode` records every episode of a batch, `on_stale` each that was too old for it.

        `columns` keeps what becomes known of each token. `translation` goes with a teacher that has
        another tokenizer. `meter` measures each phase's peak of memory.
        """
        self._recipe = recipe
        self._algorithm = algorithm
        groups = Groups(recipe, algorithm, runner=runner, judge=judge)
        self._collector: Collector = (
            Ahead(groups, tasks) if recipe.max_staleness else OnPolicy(groups, tasks)
        )
        self._sampler = sampler
        self._trainer = trainer
        self._compute = compute
        self._on_episode = on_episode
        self._on_stale = on_stale
        self._columns = columns
        self._meter = meter
        self._translation = translation

    async def learn(self, progress: Progress) -> tuple[Progress, dict[str, float]]:
        """Collect one batch and update the weights from it."""
        prefilled, busy = self._statistics()
        if self._meter is not None:
            self._meter.begin()
        if not self._recipe.max_staleness:
            await self._sampler.forget()  # what an evaluation left warm is not there on resuming
        rollout, progress = await self._collector.collect(progress)
        self._record(rollout)
        refuse_if_all_failed(rollout.episodes)
        metrics = rollout_metrics(rollout)
        if self._meter is not None:
            metrics["sampling_peak_memory_gib"] = self._meter.peak() / 2**30
        if self._recipe.max_staleness:
            metrics |= lag_metrics(rollout, progress.policy_version)
        if rollout.groups:
            progress, measured = await self._train(rollout.groups, progress)
            metrics |= measured
        later = self._statistics()
        metrics["prefilled_tokens"] = float(later[0] - prefilled)
        metrics["sampler_busy_seconds"] = later[1] - busy
        progress = self._collector.position(progress)
        return progress.after(batch=progress.batch + 1), metrics

    async def close(self) -> None:
        """Give up what is in play; whoever resumes plays it again."""
        await self._collector.close()

    def _statistics(self) -> tuple[int, float]:
        statistics = self._sampler.statistics
        return statistics.prefilled_tokens, statistics.busy_seconds

    def _record(self, rollout: Rollout) -> None:
        for episode in rollout.episodes:
            self._on_episode(episode)
        for episode in rollout.stale:
            self._on_stale(episode)

    async def _train(
        self, groups: Sequence[Group], progress: Progress
    ) -> tuple[Progress, dict[str, float]]:
        """Every update the recipe makes from one batch; the metrics of all of them as one."""
        if not self._recipe.max_staleness:
            await self._sampler.forget()  # no answer is open, and after the update none of it holds
        credited = await self._compute.run(self._credited, groups)
        passes = 1 if isinstance(self._algorithm, Distill) else self._algorithm.passes
        parts = _minibatches(credited, self._recipe.optimizer_steps_per_batch)
        parts = parts * passes
        updates = []
        for number, part in enumerate(parts):
            self._collector.training(progress, len(parts) - number)
            updates.append(await self._update(training_batch(part), progress.policy_version))
            if self._columns is not None and number < len(parts) // passes:
                learned = self._trainer.latest
                assert learned is not None, "there was an update"
                record_columns(self._columns, groups, part, learned)
            progress = progress.after(
                optimizer_step=progress.optimizer_step + 1,
                policy_version=progress.policy_version + 1,
            )
        self._collector.training(progress, 0)
        return progress, over_updates(updates)

    async def _update(self, batch: TrainingBatch, version: int) -> dict[str, float]:
        """One update of the weights, which are of `version` before it."""
        if not self._recipe.max_staleness:
            metrics = await self._compute.run(self._trainer.step, batch)
            await self._sampler.update_weights(
                WeightUpdate(version=version + 1, base_version=version)
            )
            return metrics
        parts = self._trainer.begin(batch)
        while True:  # between two parts the sampler draws a token for each answer in play
            found = await self._compute.run(self._advance, parts, batch, version)
            if found is not None:
                return found

    def _advance(self, parts: Parts, batch: TrainingBatch, version: int) -> dict[str, float] | None:
        metrics = self._trainer.advance(parts)
        if metrics is None:
            return None
        self._sampler.take_up(version + 1)  # the weights have just changed, under open answers
        learned = self._trainer.latest
        assert learned is not None, "there was an update"
        return metrics | same_policy_metrics(learned, batch.trajectories, version)

    def _credited(self, groups: Sequence[Group]) -> list[list[Credited]]:
        """Each group's trajectories with what its tokens are credited with."""
        needed = columns_before_training(self._recipe)
        columns = self._trainer.annotate(trajectories_of(groups)) if needed else {}
        if not isinstance(self._algorithm, Distill):
            return credit(groups, self._algorithm, columns)
        if self._translation is not None:
            return with_advantages(groups, self._translation.advantages(groups), columns)
        return with_advantages(groups, teacher_advantages(groups, columns), columns)


def refuse_if_all_failed(episodes: Sequence[Episode]) -> None:
    """Raise `EnvironmentFailure` where no episode of a batch could be played.

    What fails here and there is dropped; what fails everywhere would use up the steps of the run
    and end as if it had been trained.
    """
    if episodes and all(e.outcome.status == "infrastructure_failed" for e in episodes):
        last = episodes[-1].outcome
        raise EnvironmentFailure(
            f"each of the {len(episodes)} episodes of a batch failed; "
            f"last: {last.reason or 'no reason given'}",
            fix=last.fix or "mend the environment, or what it depends on",
        )


def _minibatches(credited: Sequence[list[Credited]], count: int) -> list[list[Credited]]:
    """Groups dealt out to `count` updates; fewer where there are fewer groups."""
    dealt = [credited[start::count] for start in range(min(count, len(credited)))]
    return [[row for group in part for row in group] for part in dealt]
