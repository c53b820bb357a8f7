"""Rules about what training stands on: environments, the accelerator, the records themselves."""

from __future__ import annotations

from collections import Counter

from training_gym.records.health.history import History
from training_gym.records.health.rule import Reading, Rule, graded
from training_gym.spec.health import Thresholds

PERIOD_S = 30 * 60.0
WINDOW = 3


def infrastructure(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Failed share of the attempts at episodes in the last half hour."""
    since = history.last.time - PERIOD_S
    plays = [
        play for part in history.plays(environment, 50) for play in part.plays if play.time >= since
    ]
    attempts = sum(play.attempts for play in plays)
    if attempts < limits.infrastructure_attempts:
        return None
    failed = [play for play in plays if play.failures]
    share = sum(play.failures for play in failed) / attempts
    reasons = Counter(play.reason for play in failed if play.reason).most_common(3)
    said = f": {reasons[0][0]}" if reasons else ""
    return graded(
        share,
        limits.infrastructure,
        f"{share:.0%} of {attempts} attempts at episodes failed{said:.120}",
        failed[::-1],
        reasons=dict(reasons),
        attempts=attempts,
    )


def accelerator_idle(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the last steps' time in which nothing was sampled or trained, and who is to blame.

    From measured spans; steps without any, or with an evaluation in them, are left out.
    """
    steps = [step for step in history.recent if step.busy_s is not None and step.metrics]
    steps = [step for step in steps if step.metrics.get("step_seconds", 0) > 0][-WINDOW:]
    if len(steps) < WINDOW or steps[-1].number != history.last.number:
        return None
    total = sum(step.metrics["step_seconds"] for step in steps)
    busy = sum(step.busy_s or 0.0 for step in steps)
    blame: Counter[str] = Counter()
    for step in steps:
        blame.update(step.blame_s)
    idle = max(0.0, 1 - busy / total)
    worst = blame.most_common(1)
    who = f", most of it waiting for {worst[0][0]}" if worst and worst[0][1] > 0 else ""
    return graded(
        idle,
        limits.accelerator_idle,
        f"the accelerator was idle {idle:.0%} of the time{who}",
        blame={name: round(seconds, 3) for name, seconds in blame.items()},
    )


def telemetry_loss(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the records that were dropped under pressure."""
    total = history.dropped + history.written
    if total == 0:
        return None
    share = history.dropped / total
    return graded(
        share,
        limits.telemetry_loss,
        f"{history.dropped} of {total} records were dropped",
        dropped=history.dropped,
    )


RULES = (
    Rule(
        name="infrastructure",
        title="Failing environments and sandboxes",
        measure=infrastructure,
        scope="environment",
        explanations=(
            "the sandbox provider refuses or loses sandboxes: quota, image, network",
            "the environment's own code raises for some tasks",
            "a service that it depends on is down or too slow",
        ),
        next=(
            "read the reasons: training-gym episodes {run} --status infrastructure_failed",
            "lower the number of episodes in play; check the provider's quota",
        ),
        source="miles aborts on such a share; 5 %, 20 % and 30 minutes are ours",
    ),
    Rule(
        name="accelerator_idle",
        title="Idle accelerator",
        measure=accelerator_idle,
        explanations=(
            "environments or rewards are slower than sampling",
            "a few long episodes hold up the batch",
            "checkpoints, evaluations or weight updates take long",
        ),
        next=(
            "training-gym timeline {run} shows what the time went to",
            "run more rewards at once (reward_workers), or allow staleness",
        ),
        source="prime-rl and verl measure it; bounds are ours",
    ),
    Rule(
        name="telemetry_loss",
        title="Dropped records",
        measure=telemetry_loss,
        explanations=("the disk is too slow or full", "too many metrics or log lines a second"),
        next=("free space or use a faster disk; print less",),
        source="ours",
    ),
)
