"""Tuning advice: what could go better in a run that is well. Silent while anything is not."""

from __future__ import annotations

from training_gym.records.health.history import History
from training_gym.records.health.improvement import risen_evaluation
from training_gym.records.health.plays import joined
from training_gym.records.health.rule import Reading, Rule
from training_gym.records.health.series import slope_score
from training_gym.records.means import mean_of
from training_gym.spec.health import Thresholds

FLAT_STEPS = 20


def learning_rate_low(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Reward flat over 20 steps, nothing clipped, entropy where it began, no evaluation risen."""
    rewards = history.metric("reward_mean")[-FLAT_STEPS:]
    entropy, usual = history.metric("entropy"), history.reference("entropy")
    if len(rewards) < FLAT_STEPS or not entropy or not usual:
        return None
    still = 0.9 < mean_of(entropy[-3:]) / usual < 1.1
    unclipped = max(history.metric("clipped_fraction")[-FLAT_STEPS:], default=0.0) < 0.001
    score = slope_score(rewards)
    message = "reward and entropy have hardly moved: a higher learning rate may learn faster"
    found = abs(score) < 2 and still and unclipped
    if found and (risen := risen_evaluation(history, history.recent[-FLAT_STEPS].number - 1)):
        return Reading(score, f"the reward has hardly moved, but {risen[0]} rose by {risen[1]}")
    return Reading(score, message, "advice" if found else None, not found)


def group_size_low(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Many equal groups, though not alarmingly many, some at the top and some at the bottom."""
    together = joined(history.plays(environment, 5))
    if len(together.groups) < 10:
        return None
    share = len(together.equal_groups) / len(together.groups)
    rewards = {group[0].reward for group in together.equal_groups}
    size = mean_of([len(group) for group in together.groups])
    found = 0.3 < share <= limits.zero_variance.warning and len(rewards) > 1 and size < 16
    message = f"{share:.0%} equal groups: larger groups, or dynamic sampling, waste fewer episodes"
    return Reading(share, message, "advice" if found else None, not found)


def answer_limit_high(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """No answer uses a quarter of the tokens it may."""
    limit = history.facts.max_response_tokens
    longest = history.metric("response_tokens_max")[-FLAT_STEPS:]
    if limit is None or len(longest) < FLAT_STEPS:
        return None
    share = max(longest) / limit
    message = f"no answer is longer than {max(longest):.0f} tokens: max_response_tokens={limit} "
    message += "reserves memory for nothing"
    return Reading(share, message, "advice" if share < 0.25 else None, share >= 0.3)


RULES = (
    Rule(
        name="learning_rate_low",
        title="Learning rate may be low",
        measure=learning_rate_low,
        explanations=("updates are too small to see", "there is nothing to learn from the reward"),
        next=("try three times the learning rate for some steps",),
        source="ours",
    ),
    Rule(
        name="group_size_low",
        title="Groups may be small",
        measure=group_size_low,
        scope="environment",
        explanations=("groups are too small to catch both success and failure",),
        next=("raise group_size, or use DAPO(dynamic_sampling=True)",),
        source="ours",
    ),
    Rule(
        name="answer_limit_high",
        title="Answer limit may be high",
        measure=answer_limit_high,
        explanations=("the limit was set for a longer task",),
        next=("lower max_response_tokens to twice the longest answer",),
        source="ours",
    ),
)
