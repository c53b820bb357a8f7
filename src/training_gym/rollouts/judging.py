"""From finished episodes to scored ones: who is judged, what is tried again, when to give up.

An episode that failed for reasons of infrastructure is never judged. A reward that could not judge
is asked once more, then the episode is left without a score: dropped, never zero. A reward that
keeps failing ends the run, because what is left over would be a biased sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from training_gym.rewards import Judgement
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError

ALLOWED_FAILURES = 2
ALLOWED_SHARE = 0.1

WORTH_ASKING_AGAIN = ("none", "raised", "died")
"""What may pass. A reward that hung would only hang again, for as long."""


class Judges(Protocol):
    """What scores a group; `rewards.RewardRunner` does."""

    async def judge(self, episodes: Sequence[Episode]) -> list[Judgement]:
        """One judgement for each episode of a group."""
        ...


class EpisodeJudge:
    """Scores groups of episodes and keeps count of failures."""

    def __init__(self, rewards: Judges | None, on_failure: Callable[..., Any]) -> None:
        """Without `rewards` the environment's own scores stand.

        `on_failure(episode, kind, message)` hears of every failure.
        """
        self._rewards = rewards
        self._on_failure = on_failure
        self.num_judged = 0
        self.num_failed = 0

    async def __call__(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes with scores, where they could be judged."""
        judged = {
            index: episode
            for index, episode in enumerate(episodes)
            if episode.outcome.status != "infrastructure_failed"
        }
        if self._rewards is not None and judged:
            await self._score(judged, list(judged))
        return [judged.get(index, episode) for index, episode in enumerate(episodes)]

    async def _score(self, episodes: dict[int, Episode], indices: list[int]) -> None:
        assert self._rewards is not None
        first = await self._rewards.judge([episodes[index] for index in indices])
        found = dict(zip(indices, first, strict=True))
        if any(judgement.kind in WORTH_ASKING_AGAIN for judgement in first):
            second = await self._rewards.judge([episodes[index] for index in indices])
            for index, judgement in zip(indices, second, strict=True):
                if found[index].score is None:
                    found[index] = judgement
        for index, judgement in found.items():
            self.num_judged += 1
            if judgement.score is not None:
                episodes[index] = episodes[index].changed(score=judgement.score)
            elif judgement.kind != "none":
                self._failed(episodes[index], judgement)

    def _failed(self, episode: Episode, judgement: Judgement) -> None:
        self.num_failed += 1
        message = judgement.failure or judgement.kind
        self._on_failure(episode, judgement.kind, message)
        if self.num_failed > max(ALLOWED_FAILURES, ALLOWED_SHARE * self.num_judged):
            raise RewardError(
                f"the reward failed on {self.num_failed} of {self.num_judged} episodes; "
                f"last: {message}",
                fix="mend the reward; return None for what it cannot judge",
            )
