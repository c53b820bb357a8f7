"""What one batch collected, and what it was like."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from training_gym.engines.local.credit import Group
from training_gym.rollouts.drift import drift_rate
from training_gym.spec.episodes import SAMPLED, Episode


@dataclass
class Rollout:
    """What one batch collected."""

    groups: list[Group] = field(default_factory=list)
    """Groups that will be learned from."""
    episodes: list[Episode] = field(default_factory=list)
    """Everything played, dropped and uninformative episodes included."""
    num_groups: int = 0
    num_equal_groups: int = 0
    num_dropped: int = 0
    """Episodes that nothing can be learned from: not judged, or without a token of the policy."""
    stale: list[Episode] = field(default_factory=list)
    """Played, but too old to be learned from."""
    seconds: float = 0.0
    """From the wish for a batch to its end."""
    since_last_s: float = 0.0
    """Since the batch before, while which this one was sampled."""


def rollout_metrics(rollout: Rollout) -> dict[str, float]:
    """What a batch's episodes were like."""
    judged = [episode for episode in rollout.episodes if episode.score is not None]
    rewards = [episode.score.value for episode in judged if episode.score]
    lengths = [episode.num_tokens for episode in rollout.episodes]
    total = len(rollout.episodes)
    metrics = {
        "episodes": float(total),
        "episodes_dropped": float(rollout.num_dropped),
        "groups_equal_share": rollout.num_equal_groups / max(rollout.num_groups, 1),
        "response_tokens_mean": math.fsum(lengths) / max(total, 1),
        "response_tokens_max": float(max(lengths, default=0)),
        "drift_rate": drift_rate(
            prompt for episode in rollout.episodes for prompt in episode.fidelity
        ),
        "turns_mean": math.fsum(_turns(episode) for episode in rollout.episodes) / max(total, 1),
        "truncated_share": _share(rollout.episodes, "truncated"),
        "infrastructure_failed_share": _share(rollout.episodes, "infrastructure_failed"),
        "sampled_tokens": float(sum(lengths)),
        "rollout_seconds": rollout.seconds,
        "sampled_tokens_per_second": sum(lengths) / max(rollout.since_last_s, 1e-9),
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


def lag_metrics(rollout: Rollout, version: int) -> dict[str, float]:
    """How many policy versions older than `version`, the learning one, the tokens of a batch are.

    `policy_lag_mean` and `policy_lag_max` run over the tokens that are learned from;
    `stale_dropped_share` is that of the episodes which were too old to be.
    """
    lags = [
        version - drawn_by
        for group in rollout.groups
        for _, _, trajectory in group.rows
        for drawn_by, on in zip(trajectory.versions, trajectory.loss_mask, strict=True)
        if on
    ]
    played = len(rollout.episodes) + len(rollout.stale)
    return {
        "policy_lag_mean": math.fsum(lags) / max(len(lags), 1),
        "policy_lag_max": float(max(lags, default=0)),
        "stale_dropped_share": len(rollout.stale) / max(played, 1),
    }


def oldest_version(episodes: Sequence[Episode], default: int) -> int:
    """The oldest policy version that drew a token of these episodes; `default`: none was drawn."""
    return min(
        (
            version
            for episode in episodes
            for trajectory in episode.trajectories
            for version in trajectory.versions
            if version >= 0
        ),
        default=default,
    )


def _turns(episode: Episode) -> int:
    """Answers the policy gave; those shown in the prompt are not its own."""
    shown = () if isinstance(episode.task.prompt, str) else episode.task.prompt
    given = sum(message.role == "assistant" for message in shown)
    return sum(message.role == "assistant" for message in episode.messages) - given


def _share(episodes: Sequence[Episode], status: str) -> float:
    return sum(episode.outcome.status == status for episode in episodes) / max(len(episodes), 1)


def longest_answer(episode: Episode) -> int:
    """Tokens of the longest turn: limits hold for turns, not for episodes."""
    longest = 0
    for trajectory in episode.trajectories:
        length = 0
        for flag in trajectory.flags:
            length = length + 1 if flag & SAMPLED else 0
            longest = max(longest, length)
    return longest
