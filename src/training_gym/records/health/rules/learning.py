"""Rules about what is learned: is there a signal, does the policy still explore, is it stable."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from training_gym.records.health.history import History
from training_gym.records.health.improvement import risen_evaluation
from training_gym.records.health.plays import Play, joined
from training_gym.records.health.rule import Reading, Rule, graded
from training_gym.records.health.series import slope_score
from training_gym.records.means import mean_of
from training_gym.spec.health import Thresholds

WINDOW = 5
"""Steps that are looked at together where one step alone holds too few groups."""
SOLVED = 0.95
"""Share of the best reward ever seen from which on equal groups mean that a task is solved."""
LATELY = 10
"""Steps over which something must rise for a falling entropy to be no illness."""
RISING = 2.0
"""Standard errors above zero from which on a slope counts as rising."""


def zero_variance(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the groups in the last steps whose rewards were all equal."""
    steps = history.plays(environment, WINDOW)
    if len(steps) < 3:
        return None
    together = joined(steps)
    if not together.groups:
        return _reported_variance(history, limits)
    share = len(together.equal_groups) / len(together.groups)
    seen = [reward for part in history.plays(environment, 50) for reward in part.rewards]
    best, worst = max(seen), min(seen)
    top = sum(_reward(group) >= best - 1e-6 and best > worst for group in together.equal_groups)
    equal = max(len(together.equal_groups), 1)
    bounds = limits.zero_variance
    solved = best > 0 and mean_of(together.rewards) >= SOLVED * best and 2 * top >= equal
    plays = [group[0] for group in together.equal_groups[::-1]]
    message = f"{share:.0%} zero-variance groups ({_split(top, equal, best == worst)})"
    reading = graded(
        share, bounds, message, plays, all_best=top, equal=equal, groups=len(together.groups)
    )
    if solved and reading.severity is not None:  # not ill, only no longer taught by these tasks
        return replace(reading, severity="advice")
    if best == worst == 0:
        return Reading(
            share, "every reward so far is zero", "critical", False, 0.0, evidence=reading.evidence
        )
    return reading


def entropy_collapse(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Entropy as a share of its reference, while neither reward nor an evaluation rises."""
    found = _against_reference(history, "entropy")
    if found is None:
        return None
    share, now, usual = found
    if _still_rising(history) or _at_best(history):
        return Reading(share, f"entropy fell to {share:.2g}× while the reward rises")
    if risen := risen_evaluation(history, history.recent[-LATELY:][0].number - 1):
        return Reading(share, f"entropy fell to {share:.2g}× while {risen[0]} rose by {risen[1]}")
    message = f"entropy fell to {share:.2g}× its early value ({usual:.3g} → {now:.3g} nats)"
    return graded(share, limits.entropy_collapse, message, lower_is_worse=True)


def entropy_blowup(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Entropy as a multiple of its reference, where it is large in itself.

    A policy that blows up before the steps of the reference is compared with the one it began as:
    what the first step measures is still that.
    """
    found = _against_reference(history, "entropy")
    if found is None:
        return None
    _, now, usual = found
    if history.early[0].number == 1:
        usual = min(usual, history.early[0].metrics.get("entropy", usual))
    share = now / usual if usual > 0 else 1.0
    message = f"entropy rose to {share:.2g}× its early value ({usual:.3g} → {now:.3g} nats)"
    if now <= limits.entropy_floor:
        return Reading(share, message)
    return graded(share, limits.entropy_blowup, message)


def grad_norm(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Gradient norm over its rolling median; worse with entropy and length rising."""
    raw = history.last.metrics.get("grad_norm")
    if raw is None:
        return None
    if not math.isfinite(raw) or history.last.metrics.get("skipped"):
        return Reading(
            math.inf, "the gradient was not finite", "critical", False, at_once=True, threshold=0.0
        )
    before = history.metric("grad_norm")[:-1]
    if len(before) < 8:
        return None
    usual = statistics.median(before)
    share = raw / usual if usual > 0 else 1.0
    reading = graded(share, limits.grad_norm, f"gradient norm {share:.1f}× its median ({raw:.3g})")
    if reading.severity == "warning" and _unravelling(history):
        return Reading(
            share,
            f"{reading.message}, with entropy and lengths rising",
            "critical",
            False,
            reading.threshold,
        )
    return reading


def reward_drop(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Mean reward of the last steps against the best such mean before, in standard errors."""
    parts = history.plays(environment, 50)
    rewards = [part.rewards for part in parts if len(part.rewards) > 1]
    if len(rewards) < 2 * WINDOW + 2:
        return None
    windows = [
        [value for step in rewards[at : at + WINDOW] for value in step]
        for at in range(len(rewards) - WINDOW + 1)
    ]
    now = windows[-1]
    best = max(windows[: -WINDOW + 1], key=mean_of)
    error = math.sqrt(statistics.pvariance(now) / len(now) + statistics.pvariance(best) / len(best))
    fall = mean_of(best) - mean_of(now)
    low, high = min(map(min, windows)), max(map(max, windows))
    score = fall / error if error > 0 else (math.inf if fall > 0 else 0.0)
    message = f"mean reward fell from {mean_of(best):.3g} to {mean_of(now):.3g}"
    if fall < 0.1 * (high - low):
        return Reading(score, message)
    worst = sorted(joined(parts[-WINDOW:]).judged, key=lambda play: (play.reward or 0.0, play.id))
    return graded(score, limits.reward_drop, message, worst, fall=fall)


def _against_reference(history: History, name: str) -> tuple[float, float, float] | None:
    """Newest value over reference, newest value, reference."""
    usual, values = history.reference(name), history.metric(name)
    if usual is None or usual <= 0 or not values or history.last.number <= 5:
        return None
    return values[-1] / usual, values[-1], usual


def _still_rising(history: History) -> bool:
    return slope_score(history.metric("reward_mean")[-LATELY:]) > RISING


def _at_best(history: History) -> bool:
    """Whether the reward stays near the best it can be, as far as the run has seen."""
    best = [
        step.metrics["reward_max"]
        for step in (*history.early, *history.recent)
        if "reward_max" in step.metrics
    ]
    rewards = history.metric("reward_mean")[-3:]
    return bool(best and rewards) and mean_of(rewards) >= SOLVED * max(best) > 0


def _unravelling(history: History) -> bool:
    for name in ("entropy", "response_tokens_mean"):
        found = _against_reference(history, name)
        if found is None or found[0] < 1.5:
            return False
    return True


def _reported_variance(history: History, limits: Thresholds) -> Reading | None:
    shares = history.metric("groups_equal_share")[-WINDOW:]
    if len(shares) < 3:
        return None
    return graded(
        mean_of(shares), limits.zero_variance, f"{mean_of(shares):.0%} zero-variance groups"
    )


def _reward(group: Sequence[Play]) -> float:
    return group[0].reward or 0.0


def _split(top: int, equal: int, all_alike: bool) -> str:
    if all_alike:
        return "every reward is the same"
    return f"{top / equal:.0%} of them all at the best reward"


RULES = (
    Rule(
        name="zero_variance",
        title="Groups whose rewards are all equal",
        measure=zero_variance,
        scope="environment",
        explanations=(
            "the tasks are too hard or too easy for this model",
            "the reward is too coarse to tell answers apart, or cannot parse them",
            "the policy has become deterministic: compare the entropy",
        ),
        next=(
            "read the episodes of such a group: training-gym episodes {run}",
            "mix in easier or harder tasks, or train with DAPO(dynamic_sampling=True)",
            "raise group_size, or the sampling temperature",
        ),
        source="miles warns at 0.5; TRL logs frac_reward_zero_std",
    ),
    Rule(
        name="entropy_collapse",
        title="Entropy collapse",
        measure=entropy_collapse,
        explanations=(
            "the policy has settled on one answer and explores no more",
            "learning rate or number of updates per batch too high",
            "clipping keeps unlikely tokens from becoming likelier",
        ),
        next=(
            "lower the learning rate, or raise clip_high (DAPO uses 0.28)",
            "add a KL or entropy term, or a more varied set of tasks",
            "go back to a checkpoint from before the first step of this alert",
        ),
        source="rllm#116 and verl#1066 report the pattern; thresholds are ours",
    ),
    Rule(
        name="entropy_blowup",
        title="Entropy blow-up",
        measure=entropy_blowup,
        explanations=(
            "updates are too large: the policy falls apart into noise",
            "sampler and trainer disagree: compare the mismatch",
            "an entropy bonus outweighs the reward",
        ),
        next=(
            "stop, and go on from a checkpoint before the first step with a lower learning rate",
            "read the newest episodes: are they still language?",
        ),
        source="verl#1066 reports the pattern; thresholds are ours",
    ),
    Rule(
        name="grad_norm",
        title="Gradient norm",
        measure=grad_norm,
        explanations=(
            "a few extreme advantages or ratios dominate the batch",
            "learning rate too high: weights move away from where gradients are tame",
            "numbers overflow: look at dtype and at the longest episodes",
        ),
        next=(
            "look at advantages and ratios of the longest episodes",
            "lower the learning rate or max_grad_norm",
        ),
        source="verl#1066 reports the pattern; thresholds are ours",
    ),
    Rule(
        name="reward_drop",
        title="Reward below its best",
        measure=reward_drop,
        scope="environment",
        explanations=(
            "learning rate too high: the policy overshot and does not come back",
            "the tasks became harder: compare the same tasks before and after",
            "the environment or the reward changed or breaks: compare infrastructure failures",
        ),
        next=(
            "training-gym explain {run} says which tasks and components fell",
            "go on from a checkpoint before the first step with a lower learning rate",
        ),
        source="ours",
    ),
)
