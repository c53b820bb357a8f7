"""One sentence for a run, and the level it stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from training_gym.records.health.alerts import RANK, Alert, Level, Verdict, by_weight
from training_gym.records.health.history import SINGLE_TURN

FEWEST_STEPS = 3
"""Steps before which nothing can be said of what a run learns."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands, as far as a verdict needs it."""

    status: str
    """See `records.status.RunStatus`."""
    steps: int = 0
    reward_first: float | None = None
    """Mean over the first steps."""
    reward_now: float | None = None
    """Mean over the newest steps."""
    reason: str = ""
    """Why it ended, if it has and there is something to say."""
    paused: bool = False


def verdict_of(alerts: Iterable[Alert], standing: Standing) -> Verdict:
    """The verdict: how the run ended if badly, else its worst alert, else how the reward went.

    Acknowledged alerts still decide the level; somebody having seen it does not make a run well.
    What an engine only mentioned once, such as a step without an update, decides nothing.
    """
    live = [a for a in by_weight(alerts) if a.state != "resolved" and not a.is_notice]
    live.sort(key=lambda alert: -RANK[alert.severity])
    if standing.status in ("failed", "lost"):
        what = standing.reason or ("the job is gone" if standing.status == "lost" else "it failed")
        return Verdict(level="critical", sentence=f"{standing.status.capitalize()}: {what}")
    worst = live[0] if live else None
    if worst is not None and worst.severity != "advice":
        return _of_alert(worst, live, paused=standing.paused)
    return _without_alert(standing, worst)


def _of_alert(worst: Alert, live: list[Alert], *, paused: bool) -> Verdict:
    level: Level = "critical" if worst.severity == "critical" else "degraded"
    word = "Stuck" if worst.rule == "stall" else level.capitalize()
    since = "" if worst.first_step is None else f" since step {worst.first_step}"
    others = sum(alert.severity != "advice" for alert in live) - 1
    more = f", and {others} more" if others else ""
    held = "; paused" if paused else ""
    where = f" in {worst.environment}" if worst.environment not in ("", SINGLE_TURN) else ""
    return Verdict(
        level=level,
        sentence=f"{word}: {worst.message}{where}{since}{more}{held}",
        since_step=worst.first_step,
        rule=worst.rule,
    )


def _without_alert(standing: Standing, advice: Alert | None) -> Verdict:
    if standing.paused:
        return Verdict(level="healthy", sentence=f"Paused after {_steps(standing)}")
    if standing.steps < FEWEST_STEPS:
        return Verdict(level="too_early", sentence=f"Too early to say: {_steps(standing)}")
    hint = f"; {advice.message}" if advice is not None else ""
    return Verdict(level="healthy", sentence=f"Healthy: {_course(standing)}{hint}")


def _course(standing: Standing) -> str:
    if standing.reward_first is None or standing.reward_now is None:
        return f"{_steps(standing)}, nothing found"
    return f"reward {standing.reward_first:.3g} → {standing.reward_now:.3g} in {_steps(standing)}"


def _steps(standing: Standing) -> str:
    return "1 step" if standing.steps == 1 else f"{standing.steps} steps"
