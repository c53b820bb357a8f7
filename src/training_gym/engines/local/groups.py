"""Groups of episodes: how they are played, and what of them is learned from."""

from __future__ import annotations

from training_gym.algorithms.advantages import overlong_penalty
from training_gym.engines.local.credit import Group
from training_gym.engines.local.rollout import Rollout, longest_answer
from training_gym.engines.local.state import Progress
from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.evaluation import Judge
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.spec.algorithms import DAPO, Distill, GroupCompared, PolicyAlgorithm
from training_gym.spec.episodes import Episode
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task


class Groups:
    """Plays groups as a recipe has them, and takes into a batch what teaches something."""

    def __init__(
        self,
        recipe: Recipe,
        algorithm: PolicyAlgorithm | Distill,
        *,
        runner: EpisodeRunner,
        judge: Judge,
    ) -> None:
        """Episodes are played by `runner` and scored by `judge`."""
        self.recipe = recipe
        self._algorithm = algorithm
        self._runner = runner
        self._judge = judge

    async def play(self, task: Task, visit: int, progress: Progress) -> list[Episode]:
        """The episodes of one draw of a task, with scores."""
        group = f"{progress.batch}-{visit}"
        attempts = [
            Attempt(task, member, visit, "train", group) for member in range(self.recipe.group_size)
        ]
        sampling = training_sampling(self.recipe)
        episodes = await self._runner.play_group(attempts, sampling, progress.counters)
        return await self._judge(episodes)

    def take_in(self, rollout: Rollout, episodes: list[Episode]) -> None:
        """Add a group to what a batch has collected."""
        kept = [episode for episode in episodes if self._teaches(episode)]
        group = Group(kept, [self._shaped(episode) for episode in kept])
        rollout.episodes.extend(episodes)
        rollout.num_dropped += len(episodes) - len(kept)
        rollout.num_groups += 1
        rollout.num_equal_groups += not group.informative
        chosen = any(episode.num_tokens for episode in kept)  # a form may leave no choice at all
        if chosen and (group.informative or not self._skips_equal_groups):
            rollout.groups.append(group)

    def missing(self, rollout: Rollout) -> int:
        """Groups that are still to be played for the batch.

        Dynamic sampling replaces those that teach nothing, up to `max_resampled_batches`.
        """
        wanted, algorithm = self.recipe.prompts_per_batch, self._algorithm
        if not (isinstance(algorithm, DAPO) and algorithm.dynamic_sampling):
            return wanted - rollout.num_groups
        most = wanted * (1 + algorithm.max_resampled_batches)
        return max(min(wanted - len(rollout.groups), most - rollout.num_groups), 0)

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
        limit = training_sampling(self.recipe).max_tokens
        assert limit is not None
        return value + overlong_penalty(
            longest_answer(episode),
            limit,
            self._algorithm.overlong_buffer_tokens,
            self._algorithm.overlong_penalty,
        )


def training_sampling(recipe: Recipe) -> Sampling:
    """How training episodes are sampled, with the answer's length filled in."""
    if recipe.sampling.max_tokens is not None:
        return recipe.sampling
    return recipe.sampling.changed(max_tokens=recipe.max_response_tokens)
