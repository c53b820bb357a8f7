"""What the parts of a run tell, as records."""

from __future__ import annotations

from training_gym.engines.local.rollout import oldest_version
from training_gym.records.recorder import Recorder
from training_gym.spec.episodes import Episode
from training_gym.spec.recipe import Recipe


class Reports:
    """Writes down episodes, and what befell them."""

    def __init__(self, recorder: Recorder, recipe: Recipe) -> None:
        """Of a run that trains as `recipe` says."""
        self._recorder = recorder
        self._max_staleness = recipe.max_staleness

    def episode(self, episode: Episode) -> None:
        """One that a batch is made of."""
        version, staleness = episode.counters.policy_version, None
        if self._max_staleness and version is not None:
            staleness = version - oldest_version([episode], version)
        self._recorder.episode(episode, staleness=staleness)

    def stale(self, episode: Episode) -> None:
        """One that was too old for its batch."""
        self.episode(episode)
        reason = f"older than max_staleness={self._max_staleness} allows"
        self._recorder.event("episode_discarded", episode=episode.id, reason=reason)

    def reward_failed(self, episode: Episode, kind: str, message: str) -> None:
        """One that could not be judged."""
        self._recorder.event(
            "reward_failed", episode=episode.id, task=episode.task.id, failure=kind, message=message
        )

    def fewer_slots(self, slots: int) -> None:
        """The sampler ran out of memory and goes on with fewer rows."""
        self._recorder.event("memory_shrunk", phase="sampling", why="failed", slots=slots)
