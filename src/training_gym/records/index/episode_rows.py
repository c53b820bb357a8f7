"""An episode's row: read from the index, with what follows from its group and the run's recipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.records.index.episode_heads import STATUSES, TRAIN
from training_gym.records.index.episode_values import EpisodeRow

EQUAL = 1e-6
"""Rewards of a group that lie within this are equal."""

ROW = """
SELECT e.id, e.key, st.word, g.key, e.member, g.task, en.word, e.step, e.optimizer_step,
    e.policy_version, e.attempt, e.time, e.status, t.reason, e.reward, t.components,
    g.mean, g.deviation, g.judged, g.low, g.high, e.tokens, e.prompt_tokens, e.turns,
    e.staleness, e.mean_logprob, e.duration_s, e.retries, e.dropped, e.hidden, t.preview,
    e.segment, e.offset, e.length
FROM episodes e
JOIN groups g ON g.id = e.in_group
JOIN words st ON st.id = e.stream
JOIN words en ON en.id = e.environment
JOIN episode_texts t ON t.id = e.id
"""


@dataclass(frozen=True)
class Policy:
    """What the index must know of how the run trains."""

    skips_equal_groups: bool
    normalizes: bool

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Policy:
        """From a manifest of any version."""
        recipe = (manifest.get("run") or {}).get("recipe") or {}
        algorithm = recipe.get("algorithm") or {}
        return cls(
            skips_equal_groups=algorithm.get("skip_equal_groups") is True,
            normalizes=algorithm.get("normalize_by_std", True) is not False,
        )


def row_of(row: Sequence[Any], policy: Policy) -> EpisodeRow:
    """A row of `ROW` as a value."""
    (
        _, key, stream, group, member, task, environment, step, optimizer_step, policy_version,
        attempt, moment, status, reason, reward, components, mean, deviation, _, low, high,
        tokens, prompt_tokens, turns, staleness, mean_logprob, duration_s, retries, _,
        hidden, preview, *_place,
    ) = row  # fmt: skip
    training = stream == TRAIN
    advantage = None
    if training and reward is not None and mean is not None:
        advantage = 0.0 if not deviation or high - low < EQUAL else reward - mean
        if deviation and policy.normalizes:
            advantage /= deviation + 1e-4
    return EpisodeRow(
        id=key,
        stream=stream,
        group=group,
        member=member,
        task=task,
        environment=environment,
        step=step,
        optimizer_step=optimizer_step,
        policy_version=policy_version,
        attempt=attempt,
        time=moment,
        status=STATUSES[status],
        reason=reason,
        reward=reward,
        components=json.loads(components) if components else {},
        advantage=advantage,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        turns=turns,
        staleness=staleness,
        mean_logprob=mean_logprob,
        duration_s=duration_s,
        retries=retries,
        discarded=_why_discarded(row, policy) if training else "",
        hidden=bool(hidden),
        preview=preview,
    )


def _why_discarded(row: Sequence[Any], policy: Policy) -> str:
    status, reason, reward = STATUSES[row[12]], row[13], row[14]
    judged, low, high, dropped = row[18], row[19], row[20], row[28]
    if dropped:
        return str(reason) or "left out by the engine"
    if status == "infrastructure_failed":
        return f"infrastructure failed: {reason}" if reason else "infrastructure failed"
    if reward is None:
        return f"could not be judged: {reason}" if reason else "could not be judged"
    if policy.skips_equal_groups and judged > 1 and high - low < EQUAL:
        return f"all {judged} judged episodes of its group got {low:.4g}"
    return ""
