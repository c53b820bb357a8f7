"""What the rules look at: the first steps, the newest ones, evaluations, and the clock.

Values only: the same history gives the same findings, wherever and whenever it is looked at.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from training_gym.records.health.plays import Plays

EARLY_STEPS = 12
RECENT_STEPS = 50
REFERENCE = range(3, EARLY_STEPS + 1)
"""Steps whose median is the reference; the first two are not yet typical."""
FEWEST_REFERENCES = 3
SINGLE_TURN = "single_turn"
"""What the environment of a run without one is called."""


@dataclass(frozen=True)
class Step:
    """One batch and what was recorded of it."""

    number: int
    time: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    environments: Mapping[str, Plays] = field(default_factory=dict)
    busy_s: float | None = None
    """Seconds in which something was sampled or trained; None: nobody measured."""
    blame_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds in which neither was, by the component that was at work."""


@dataclass(frozen=True)
class Evaluated:
    """One evaluation's result."""

    name: str
    step: int
    mean: float
    error: float
    """Standard error of the mean."""
    task_means: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Open:
    """A component at work, as its process last told."""

    component: str
    age_s: float
    """Since when the oldest piece of work has been going on, as of the clock."""
    count: int = 1
    usual_s: float | None = None
    """Median duration of what it has finished so far."""
    what: str = ""
    """What it works on, such as an episode's id."""


@dataclass(frozen=True)
class Clock:
    """How things stand at a moment."""

    now: float
    """Seconds since 1970, by the newest record."""
    silence_s: Mapping[str, float] = field(default_factory=dict)
    """Age of each process's last heartbeat, by writer."""
    alive: Mapping[str, bool] = field(default_factory=dict)
    """Whether a process is known to be there, by writer; unknown ones are left out."""
    open: tuple[Open, ...] = ()
    step_age_s: float | None = None
    """Since the last step was finished."""
    usual_step_s: float | None = None
    """Median time between two steps."""
    paused: bool = False


@dataclass(frozen=True)
class Facts:
    """What a run's definition says that rules need."""

    environment: str = SINGLE_TURN
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each part of a composed reward."""
    updates_per_batch: int = 1
    staleness_bound: float | None = None
    max_response_tokens: int | None = None
    num_steps: int | None = None


@dataclass(frozen=True)
class History:
    """A run so far."""

    early: tuple[Step, ...] = ()
    """Its first steps, at most 12."""
    recent: tuple[Step, ...] = ()
    """Its newest steps, at most 50, oldest first."""
    evaluations: tuple[Evaluated, ...] = ()
    clock: Clock = field(default_factory=lambda: Clock(0.0))
    facts: Facts = field(default_factory=Facts)
    dropped: int = 0
    """Records lost to pressure."""
    written: int = 0
    """Records seen."""

    @property
    def last(self) -> Step:
        """The newest step; there must be one."""
        return self.recent[-1]

    def metric(self, name: str, *more: str) -> list[float]:
        """The recent finite values of a metric, or of the first of several that is recorded."""
        return _finite(self.recent, _named(name, *more))

    def reference(self, name: str, *more: str) -> float | None:
        """Median of a metric in steps 3 to 12; None: too few of them."""
        return _median_of(self.early, _named(name, *more))

    def plays(self, environment: str, count: int) -> list[Plays]:
        """An environment's part in the newest `count` steps in which it had one."""
        found = [step.environments[environment] for step in self.recent if _has(step, environment)]
        return found[-count:]

    def of_plays(self, environment: str, value: Callable[[Plays], float | None]) -> float | None:
        """Median over steps 3 to 12 of something about an environment."""

        def read(step: Step) -> float | None:
            return value(step.environments[environment]) if _has(step, environment) else None

        return _median_of(self.early, read)

    def early_plays(self, environment: str) -> list[Plays]:
        """An environment's part in steps 3 to 12."""
        return [
            step.environments[environment]
            for step in self.early
            if step.number in REFERENCE and _has(step, environment)
        ]


def _has(step: Step, environment: str) -> bool:
    return environment in step.environments


def _named(*names: str) -> Callable[[Step], float | None]:
    def read(step: Step) -> float | None:
        return next((step.metrics[name] for name in names if name in step.metrics), None)

    return read


def _finite(steps: tuple[Step, ...], read: Callable[[Step], float | None]) -> list[float]:
    values = [read(step) for step in steps]
    return [value for value in values if value is not None and math.isfinite(value)]


def _median_of(steps: tuple[Step, ...], read: Callable[[Step], float | None]) -> float | None:
    chosen = tuple(step for step in steps if step.number in REFERENCE)
    values = _finite(chosen, read)
    return statistics.median(values) if len(values) >= FEWEST_REFERENCES else None
