"""One batch of reinforcement learning: play groups, turn scores into advantages, update."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from training_gym.algorithms.advantages import group_relative, overlong_penalty
from training_gym.data import TaskStream
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.state import Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.rollouts.evaluation import Judge
from training_gym.rollouts.runner import Attempt, EpisodeRunner
from training_gym.spec.algorithms import DAPO, PolicyGradient
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import SAMPLED, Episode, Trajectory
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Sampling, WeightUpdate
from training_gym.spec.tasks import Task


@dataclass
class Group:
    """The judged episodes of one task, with their advantages."""

    episodes: list[Episode]
    advantages: list[float]

    @property
    def informative(self) -> bool:
        """Whether anything can be learned: some advantage is not zero."""
        return any(self.advantages)


@dataclass
class Rollout:
    """What one batch collected."""

    groups: list[Group] = field(default_factory=list)
    """Groups that will be learned from."""
    episodes: list[Episode] = field(default_factory=list)
    """Everything played, dropped and uninformative episodes included."""
    num_groups: int = 0
    num_equal_groups: int = 0
    seconds: float = 0.0


class PolicyLearner:
    """Learns from its own episodes."""

    def __init__(
        self,
        recipe: Recipe,
        algorithm: PolicyGradient,
        *,
        tasks: TaskStream,
        runner: EpisodeRunner,
        judge: Judge,
        sampler: LocalSampler,
        trainer: LocalTrainer,
        compute: Compute,
        on_episode: Callable[[Episode], None],
    ) -> None:
        """`on_episode` records every episode that was played."""
        self._recipe = recipe
        self._algorithm = algorithm
        self._tasks = tasks
        self._runner = runner
        self._judge = judge
        self._sampler = sampler
        self._trainer = trainer
        self._compute = compute
        self._on_episode = on_episode

    async def learn(self, progress: Progress) -> tuple[Progress, dict[str, float]]:
        """Collect one batch and update the weights from it."""
        prefilled = self._sampler.statistics.prefilled_tokens
        rollout, progress = await self._collect(progress)
        for episode in rollout.episodes:
            self._on_episode(episode)
        refuse_if_all_failed(rollout.episodes)
        prefilled = self._sampler.statistics.prefilled_tokens - prefilled
        metrics = rollout_metrics(rollout) | {"prefilled_tokens": float(prefilled)}
        for part in _minibatches(rollout.groups, self._recipe.optimizer_steps_per_batch):
            batch = training_batch(part)
            metrics |= await self._compute.run(self._trainer.step, batch)
            version = progress.policy_version + 1
            await self._sampler.update_weights(
                WeightUpdate(version=version, base_version=progress.policy_version)
            )
            progress = progress.after(
                optimizer_step=progress.optimizer_step + 1, policy_version=version
            )
        return progress.after(batch=progress.batch + 1, tasks=self._tasks.state()), metrics

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
        rollout.episodes.extend(episodes)
        judged = [episode for episode in episodes if episode.score and episode.trajectories]
        rollout.num_groups += 1
        rewards = [self._shaped(episode) for episode in judged]
        advantages = group_relative(rewards, normalize_by_std=self._algorithm.normalize_by_std)
        group = Group(judged, advantages)
        if not group.informative:
            rollout.num_equal_groups += 1
            if self._algorithm.skip_equal_groups or not judged:
                return
        rollout.groups.append(group)

    def _shaped(self, episode: Episode) -> float:
        """The reward that advantages are computed from."""
        assert episode.score is not None
        if not isinstance(self._algorithm, DAPO):
            return episode.score.value
        limit = training_sampling(self._recipe).max_tokens
        assert limit is not None
        return episode.score.value + overlong_penalty(
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


def longest_answer(episode: Episode) -> int:
    """Tokens of the longest turn: limits hold for turns, not for episodes."""
    longest = 0
    for trajectory in episode.trajectories:
        length = 0
        for flag in trajectory.flags:
            length = length + 1 if flag & SAMPLED else 0
            longest = max(longest, length)
    return longest


def training_batch(groups: Sequence[Group]) -> TrainingBatch:
    """Every trajectory with its episode's advantage; an episode's shares sum to 1 over its rows."""
    trajectories: list[Trajectory] = []
    advantages: list[tuple[float, ...]] = []
    shares: list[float] = []
    for group in groups:
        for episode, advantage in zip(group.episodes, group.advantages, strict=True):
            for trajectory in episode.trajectories:
                trajectories.append(trajectory)
                advantages.append((advantage,) * len(trajectory.token_ids))
                shares.append(trajectory.num_sampled / episode.num_tokens)
    return TrainingBatch(
        trajectories=tuple(trajectories), advantages=tuple(advantages), weights=tuple(shares)
    )


def _minibatches(groups: Sequence[Group], count: int) -> list[list[Group]]:
    """Groups dealt out to `count` updates; fewer where there are fewer groups."""
    parts = [list(groups[start::count]) for start in range(min(count, len(groups)))]
    return [part for part in parts if part]


def rollout_metrics(rollout: Rollout) -> dict[str, float]:
    """What a batch's episodes were like."""
    judged = [episode for episode in rollout.episodes if episode.score is not None]
    rewards = [episode.score.value for episode in judged if episode.score]
    lengths = [episode.num_tokens for episode in rollout.episodes]
    total = len(rollout.episodes)
    metrics = {
        "episodes": float(total),
        "episodes_dropped": float(total - len(judged)),
        "groups_equal_share": rollout.num_equal_groups / max(rollout.num_groups, 1),
        "response_tokens_mean": math.fsum(lengths) / max(total, 1),
        "response_tokens_max": float(max(lengths, default=0)),
        "turns_mean": math.fsum(_turns(episode) for episode in rollout.episodes) / max(total, 1),
        "truncated_share": _share(rollout.episodes, "truncated"),
        "infrastructure_failed_share": _share(rollout.episodes, "infrastructure_failed"),
        "sampled_tokens": float(sum(lengths)),
        "rollout_seconds": rollout.seconds,
        "sampled_tokens_per_second": sum(lengths) / max(rollout.seconds, 1e-9),
    }
    if rewards:
        metrics["reward_mean"] = math.fsum(rewards) / len(rewards)
        metrics["reward_std"] = statistics.pstdev(rewards)
        metrics["reward_min"], metrics["reward_max"] = min(rewards), max(rewards)
    names = {name for episode in judged if episode.score for name in episode.score.components}
    for name in sorted(names):
        values = [
            e.score.components[name] for e in judged if e.score and name in e.score.components
        ]
        metrics[f"reward/{name}"] = math.fsum(values) / len(values)
    return metrics


def _turns(episode: Episode) -> int:
    """Answers the policy gave; those shown in the prompt are not its own."""
    shown = () if isinstance(episode.task.prompt, str) else episode.task.prompt
    given = sum(message.role == "assistant" for message in shown)
    return sum(message.role == "assistant" for message in episode.messages) - given


def _share(episodes: Sequence[Episode], status: str) -> float:
    return sum(episode.outcome.status == status for episode in episodes) / max(len(episodes), 1)


def training_sampling(recipe: Recipe) -> Sampling:
    """How training episodes are sampled, with the answer's length filled in."""
    if recipe.sampling.max_tokens is not None:
        return recipe.sampling
    return recipe.sampling.changed(max_tokens=recipe.max_response_tokens)
