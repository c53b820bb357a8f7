"""Watches one run: records in, changed alerts out. The same records always give the same alerts.

It holds the newest 50 steps at most, so it can watch a run of any length while it runs. It reads
no clock: time passes only by the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_gym.records.health.alerts import RANK, Alert
from training_gym.records.health.history import Facts, History
from training_gym.records.health.lifecycle import Gauge
from training_gym.records.health.observer import Observer
from training_gym.records.health.rule import Rule, Scope
from training_gym.records.health.rules import ADVICE, RULES
from training_gym.records.run_directory import Stream
from training_gym.spec.health import Health

STREAMS: tuple[Stream, ...] = (
    "events", "heartbeat", "spans", "episodes", "metrics", "evaluations",
)  # fmt: skip
"""What a monitor wants to see."""


class Monitor:
    """All rules over one run."""

    def __init__(self, run_id: str, facts: Facts, health: Health) -> None:
        """Apply the rules that `health` does not turn off, with its thresholds."""
        self._run_id = run_id
        self._limits = health.thresholds
        self._rules = [rule for rule in RULES if rule.name not in health.off]
        self._advice = [rule for rule in ADVICE if rule.name not in health.off]
        self._observer = Observer(facts)
        self._gauges: dict[tuple[str, str], Gauge] = {}

    @property
    def step(self) -> int | None:
        """The newest step that was seen."""
        return self._observer.step

    @property
    def open(self) -> list[Alert]:
        """Alerts that are open now."""
        return [gauge.alert for gauge in self._gauges.values() if gauge.alert is not None]

    def take(self, stream: Stream, record: Mapping[str, Any]) -> list[Alert]:
        """See one more record; the alerts that it opened or changed.

        Records come in the order of their time; see `records.health.feed`.
        """
        observer = self._observer
        observer.now = max(observer.now, record["time"])
        if stream == "episodes":
            observer.episode(record)
        elif stream == "metrics" and observer.metrics(record):
            return [*self._apply("environment"), *self._apply("run"), *self._advise()]
        elif stream == "spans":
            observer.span(record)
        elif stream == "evaluations" and observer.evaluation(record):
            return list(self._apply("evaluation"))
        elif stream == "events":
            observer.event(record)
            if record["kind"] == "attempt_started":
                for gauge in self._gauges.values():
                    gauge.forget()
        elif stream == "heartbeat" and observer.heartbeat(record):
            return list(self._apply("clock"))
        return []

    def _apply(self, scope: Scope) -> Iterator[Alert]:
        history = self._observer.history()
        for rule in self._rules:
            if rule.scope == scope:
                yield from self._measure(rule, history)

    def _advise(self) -> Iterator[Alert]:
        """Tuning advice, or none while anything is wrong."""
        history = self._observer.history()
        ill = any(RANK[alert.severity] > 0 for alert in self.open)
        for rule in self._advice:
            if not ill:
                yield from self._measure(rule, history)
                continue
            for (name, _), gauge in self._gauges.items():
                if name == rule.name and gauge.alert is not None:
                    yield gauge.resolve("other alerts come first", self.step, self._observer.now)

    def _measure(self, rule: Rule, history: History) -> Iterator[Alert]:
        for environment in _places(rule, history):
            reading = rule.measure(history, environment, self._limits)
            if reading is None:
                continue
            key = (rule.name, environment)
            if key not in self._gauges:
                self._gauges[key] = Gauge(rule, environment, self._run_id)
            changed = self._gauges[key].take(reading, self.step, self._observer.now)
            if changed is not None:
                yield changed


def _places(rule: Rule, history: History) -> list[str]:
    """What a rule looks at: the environments of the newest step, a suite, or the run."""
    if rule.scope == "environment":
        return sorted(history.last.environments)
    if rule.scope == "evaluation":
        return [history.evaluations[-1].name]
    return [""]
