"""What a rule is: a pure measure, and what is said when it speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from training_gym.records.health.history import History
from training_gym.records.health.plays import Play
from training_gym.spec.health import Bounds, RuleName, Severity, Thresholds

Scope = Literal["environment", "run", "evaluation", "clock"]
"""When a rule measures: after each step for each environment, after each step, after each
evaluation, or as time passes."""

RELEASE = 0.9
"""An alert resolves once its value lies so far below the threshold that opened it."""
SHOWN_EPISODES = 5


@dataclass(frozen=True)
class Reading:
    """What a rule measured at one point, before any hysteresis."""

    value: float
    message: str
    severity: Severity | None = None
    """None: nothing to complain of."""
    clear: bool = True
    """Nothing to complain of by a margin."""
    threshold: float | None = None
    at_once: bool = False
    """One point is enough."""
    subject: str = ""
    """What it is about, where that may change while the alert is open: then it is told at once."""
    evidence: tuple[str, ...] = ()
    details: Mapping[str, JsonValue] = field(default_factory=dict)


Measure = Callable[[History, str, Thresholds], Reading | None]
"""History, environment (empty for the run) and thresholds -> reading; None: cannot tell yet."""


@dataclass(frozen=True)
class Rule:
    """One way in which a run can be ill."""

    name: RuleName
    title: str
    measure: Measure
    explanations: tuple[str, ...]
    """Competing ones, the likeliest first."""
    next: tuple[str, ...]
    """`{run}` stands for the run's id."""
    source: str
    scope: Scope = "run"
    points: int = 3
    """Readings in a row that open an alert."""


def judge(value: float, bounds: Bounds) -> tuple[Severity | None, bool, float]:
    """Severity, whether clear by a margin, and the threshold that counts: higher is worse."""
    if value > bounds.critical:
        return "critical", False, bounds.critical
    if value > bounds.warning:
        return "warning", False, bounds.warning
    return None, value <= RELEASE * bounds.warning, bounds.warning


def judge_low(value: float, bounds: Bounds) -> tuple[Severity | None, bool, float]:
    """The same where lower is worse."""
    if value < bounds.critical:
        return "critical", False, bounds.critical
    if value < bounds.warning:
        return "warning", False, bounds.warning
    return None, value >= bounds.warning / RELEASE, bounds.warning


def graded(
    value: float,
    bounds: Bounds,
    message: str,
    plays: Iterable[Play] = (),
    *,
    lower_is_worse: bool = False,
    **details: JsonValue,
) -> Reading:
    """A reading of a value that is compared with two bounds."""
    severity, clear, threshold = (judge_low if lower_is_worse else judge)(value, bounds)
    return Reading(
        value, message, severity, clear, threshold, evidence=shown(plays), details=details
    )


def shown(plays: Iterable[Play]) -> tuple[str, ...]:
    """The ids of the first few episodes."""
    found = dict.fromkeys(play.id for play in plays)
    return tuple(found)[:SHOWN_EPISODES]
