"""Several rewards as one: the weighted sum, every part kept as a component."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.rewards.judgement import NOT_JUDGED, Judgement, failed, scored
from training_gym.spec.episodes import Score, is_countable
from training_gym.spec.rewards import RewardPart


def combine(parts: Sequence[RewardPart], judgements: Sequence[Judgement]) -> Judgement:
    """One judgement of an episode from those of the parts.

    A part that misbehaved decides, before one that could not judge. Components are unweighted:
    `name` is what the part returned, `name.component` what it returned in detail.
    """
    for judgement in judgements:
        if judgement.failed:
            return judgement
    scores = [judgement.score for judgement in judgements if judgement.score is not None]
    if len(scores) < len(parts):
        return NOT_JUDGED
    weights = [part.weight for part in parts]
    value = sum(weight * score.value for weight, score in zip(weights, scores, strict=True))
    turns, agents = _turns(weights, scores), _agents(weights, scores)
    for total in (value, *(turns or ()), *(agents or {}).values()):
        if not is_countable(total):
            return failed("invalid", f"composition sums to {total}, which is no reward")
    components: dict[str, float] = {}
    for part, score in zip(parts, scores, strict=True):
        components[part.name] = score.value
        for name, component in score.components.items():
            components[f"{part.name}.{name}"] = component
    return scored(
        Score(
            value=value,
            components=components,
            turns=turns,
            agents=agents,
            details={
                part.name: score.details
                for part, score in zip(parts, scores, strict=True)
                if score.details
            },
        )
    )


def _turns(weights: Sequence[float], scores: Sequence[Score]) -> tuple[float, ...] | None:
    """Weighted sum of the parts' values per turn; a part without a turn adds nothing to it."""
    given = [
        (weight, score.turns)
        for weight, score in zip(weights, scores, strict=True)
        if score.turns is not None
    ]
    if not given:
        return None
    length = max(len(turns) for _, turns in given)
    return tuple(
        sum(weight * turns[i] for weight, turns in given if i < len(turns)) for i in range(length)
    )


def _agents(weights: Sequence[float], scores: Sequence[Score]) -> dict[str, float] | None:
    """Weighted sum of the parts' values per agent."""
    total: dict[str, float] | None = None
    for weight, score in zip(weights, scores, strict=True):
        for agent, value in (score.agents or {}).items():
            total = total or {}
            total[agent] = total.get(agent, 0.0) + weight * value
    return total
