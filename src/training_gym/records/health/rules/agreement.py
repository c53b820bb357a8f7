"""Rules about what training and sampling, old and new policy, train and evaluation agree on."""

from __future__ import annotations

import math
from statistics import NormalDist

from training_gym.records.health.history import Evaluated, History
from training_gym.records.health.rule import Reading, Rule, graded
from training_gym.records.health.series import robust_score, slope_score, trend
from training_gym.records.pairing import paired_difference
from training_gym.spec.health import Bounds, Severity, Thresholds

KL_NAMES = ("kl_to_reference", "kl", "kl_to_sampler")
"""Metrics that hold a KL, in the order in which they are preferred."""
RISING_TREND = 0.7


def kl_spike(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """The KL's distance from its median over 50 steps; or it rises while the reward is flat."""
    values = history.metric(*KL_NAMES)
    if len(values) < 10:
        return None
    now = values[-1]
    score = robust_score(now, values[:-1], limits.kl_floor / 10)
    message = f"KL {now:.3g} is {score:.1f} deviations above its median"
    if now <= limits.kl_floor:
        return Reading(score, message)
    reading = graded(score, limits.kl_spike, message)
    if reading.severity is None and _rises_for_nothing(history, values):
        return Reading(
            score, f"KL rises to {now:.3g} while the reward is flat", "warning", False, 0.0
        )
    return reading


def clip_fraction(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Clipped share of the trained tokens."""
    share = history.last.metrics.get("clipped_fraction")
    if share is None:
        return None
    return graded(share, limits.clip_fraction, f"{share:.0%} of the tokens are clipped")


def mismatch(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """How far trainer and sampler disagree on tokens that the same weights drew.

    Where a batch is learned from several times, all but `mismatch_mean`, which is that of the first
    update, also hold how far the policy has moved since; where episodes are older than the policy,
    that one does as well. Metrics named `sampler_…` are free of either.
    """
    names = [f"sampler_{name}" for name in ("mismatch_mean", "kl", "effective_share", "ratio_mean")]
    if names[0] not in history.last.metrics:
        if (history.facts.staleness_bound or 0) > 0:
            return None
        names = ["mismatch_mean", "kl_to_sampler", "effective_sample_share", "ratio_mean"]
        if history.facts.updates_per_batch > 1:
            names[1:] = ["", "", ""]
    found = [history.last.metrics.get(name) for name in names]
    mean_log, kl, share, ratio = found
    if mean_log is None:
        return None
    factor = math.exp(min(mean_log, 50.0))
    past = history.metric(names[0])[-10:]
    rising = len(past) >= 5 and trend(past) > RISING_TREND
    signs: list[tuple[Severity, str]] = []
    if factor > limits.mismatch.critical:
        signs.append(("critical", f"probabilities differ by a factor of {factor:.3f}"))
    elif factor > limits.mismatch.warning and rising:
        signs.append(("warning", f"probabilities differ by a factor of {factor:.3f}, rising"))
    if kl is not None and kl > limits.mismatch_kl.warning:
        severe = kl > limits.mismatch_kl.critical
        signs.append(("critical" if severe else "warning", f"KL {kl:.3g}"))
    if share is not None and share < limits.mismatch_effective_share:
        signs.append(("warning", f"only {share:.0%} effective samples"))
    widest = limits.mismatch_mean_ratio
    if ratio is not None and not 1 / widest <= ratio <= widest:
        signs.append(("warning", f"mean importance ratio {ratio:.2f}"))
    if not signs:
        quiet = factor <= 1 + 0.9 * (limits.mismatch.warning - 1)
        return Reading(factor, f"probabilities differ by a factor of {factor:.3f}", clear=quiet)
    severity: Severity = "critical" if any(s == "critical" for s, _ in signs) else "warning"
    said = ", ".join(what for _, what in signs)
    return Reading(
        factor, f"trainer and sampler disagree: {said}", severity, False, limits.mismatch.warning
    )


def staleness(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Mean policy lag against its bound, and the share that was dropped for it."""
    lag = history.last.metrics.get("policy_lag_mean")
    dropped = history.last.metrics.get("stale_dropped_share", 0.0)
    bound = limits.staleness_bound
    if bound is None:
        bound = history.facts.staleness_bound
    if dropped > limits.stale_dropped:
        message = f"{dropped:.0%} of the episodes were dropped as too old"
        return Reading(dropped, message, "warning", False, limits.stale_dropped)
    if lag is None or bound is None:
        return None
    return graded(
        lag,
        Bounds(warning=bound, critical=max(2 * bound, bound + 1)),
        f"policies are {lag:.1f} versions old when trained on, {bound:g} are allowed",
    )


_TWO_ERRORS = 1 - NormalDist().cdf(2.0)
"""How often chance alone lies two standard errors below."""


def train_eval_gap(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Evaluations in a row far below their best, while the training reward rises.

    Far is two standard errors for the second evaluation. The best of many is high by chance too, so
    with n evaluations before it the margin is that of n such comparisons (Bonferroni). Where the
    tasks are known, the difference task by task must be below zero beyond chance, too. One reading
    after each evaluation, for the suite it belongs to.
    """
    newest = history.evaluations[-1]
    series = [found for found in history.evaluations if found.name == newest.name]
    if len(series) < 2:
        return None
    best = series[0]
    below = 0
    for earlier, found in enumerate(series[1:], 1):
        below = below + 1 if _fell(best, found, comparisons=earlier) else 0
        best = max(best, found, key=lambda one: one.mean)
    rising = slope_score(history.metric("reward_mean")) > 0
    message = (
        f"{newest.name} fell from {best.mean:.3g} (step {best.step}) to {newest.mean:.3g} "
        "while the training reward rises"
    )
    if not rising:
        below = 0
    severity: Severity | None = None
    if below >= limits.train_eval_gap.critical:
        severity = "critical"
    elif below >= limits.train_eval_gap.warning:
        severity = "warning"
    return Reading(
        float(below),
        message,
        severity,
        below == 0,
        limits.train_eval_gap.warning,
        at_once=True,
        details={"evaluation": newest.name, "best_step": best.step},
    )


def _fell(best: Evaluated, found: Evaluated, *, comparisons: int) -> bool:
    """Whether an evaluation lies below the best one, beyond the chance of so many comparisons."""
    margin = NormalDist().inv_cdf(1 - _TWO_ERRORS / comparisons) * math.hypot(
        best.error, found.error
    )
    if not found.mean < best.mean - margin:
        return False
    difference = paired_difference(best.task_means, found.task_means)
    if difference is None:  # nothing but the errors tells of chance: without any, all may be
        return margin > 0
    return difference.fell


def _rises_for_nothing(history: History, values: list[float]) -> bool:
    """Whether the KL went up and up for 20 steps, to three times what it was, and reward did not.

    The reward must be flat beyond doubt: its slope within one standard error of zero.
    """
    last = values[-20:]
    if len(last) < 20 or trend(last) < 0.8 or last[-1] < 3 * max(last[0], 1e-9):
        return False
    return abs(slope_score(history.metric("reward_mean")[-20:])) < 1.0


RULES = (
    Rule(
        name="kl_spike",
        title="KL spike",
        measure=kl_spike,
        explanations=(
            "an update was too large",
            "a few tokens with extreme ratios: look at ratio_max",
            "the reward pulls the policy far away from its start",
        ),
        next=(
            "look at the step's longest and best paid episodes",
            "lower the learning rate, or add or raise a KL term",
        ),
        source="ours; robust score over 50 steps",
    ),
    Rule(
        name="clip_fraction",
        title="Clipped tokens",
        measure=clip_fraction,
        explanations=(
            "too many updates from one batch, or too high a learning rate",
            "episodes are older than the policy: compare staleness",
            "trainer and sampler disagree: compare the mismatch",
        ),
        next=("lower optimizer_steps_per_batch or the learning rate",),
        source="ours",
    ),
    Rule(
        name="mismatch",
        title="Trainer and sampler disagree",
        measure=mismatch,
        explanations=(
            "different kernels or precisions on the two sides",
            "the sampler serves other weights than the trainer has: a sync failed",
            "temperature or another sampling setting is not the one the loss assumes",
        ),
        next=(
            "compare log-probabilities of one episode on both sides before anything else",
            "use float32 or the same attention on both; correct with truncated importance sampling",
            "watch the trend: brief spikes are tolerable",
        ),
        source="NeMo-RL (1.02, 1.05), Tinker and verl (KL, effective samples, mean ratio)",
    ),
    Rule(
        name="staleness",
        title="Old episodes",
        measure=staleness,
        explanations=(
            "sampling is slower than training",
            "a few episodes take much longer than the others",
        ),
        next=("give sampling more of the machine, or lower the bound on staleness",),
        source="prime-rl logs the same; the dropped share is ours",
    ),
    Rule(
        name="train_eval_gap",
        title="Training rises, evaluation falls",
        measure=train_eval_gap,
        scope="evaluation",
        explanations=(
            "the policy learned to please the reward, not to solve the task",
            "it overfits the training tasks",
            "the evaluation differs from training: prompt, limits, sampling",
        ),
        next=(
            "compare best paid training episodes with failed evaluation episodes",
            "training-gym explain {run} shows which tasks flipped",
            "go back to the checkpoint of the best evaluation",
        ),
        source="Alignment Forum: Qwen3-4B gamed its tests by steps 80–100; bounds are ours",
        points=1,
    ),
)
