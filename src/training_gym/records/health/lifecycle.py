"""From readings to alerts: what opens one, worsens it, eases it, and lets it resolve.

An alert opens after `points` bad readings in a row and resolves after two more than that of clear
ones; in between it stays what it is. A value that swings about its threshold makes one alert.
"""

from __future__ import annotations

from training_gym.records.health.alerts import RANK, Alert
from training_gym.records.health.rule import Reading, Rule
from training_gym.spec.health import Severity

REFRESH = 10
"""Readings after which an open alert tells its newest value again."""


class Gauge:
    """One rule watching one environment (or the run)."""

    def __init__(self, rule: Rule, environment: str, run_id: str) -> None:
        self.alert: Alert | None = None
        """The open one."""
        self._rule, self._environment, self._run_id = rule, environment, run_id
        self._streaks: dict[Severity, int] = {"advice": 0, "warning": 0, "critical": 0}
        self._began: int | None = None
        self._subject = ""
        self._clear = self._milder = self._age = 0

    def take(self, reading: Reading, step: int | None, now: float) -> Alert | None:
        """Count a reading; the alert if it has changed."""
        self._count(reading, step)
        needed = 1 if reading.at_once else self._rule.points
        reached = [name for name, count in self._streaks.items() if count >= needed]
        worst = reached[-1] if reached else None  # the mildest comes first
        if self.alert is None:
            return None if worst is None else self._open(worst, reading, step, now)
        if worst is not None and RANK[worst] > RANK[self.alert.severity]:
            return self._keep(reading, step, now, severity=worst, worsened_at=now)
        release = self._rule.points + 2
        if self._clear >= release:
            return self.resolve(reading.message, step, now)
        if self._milder >= release and reading.severity is not None:
            self._milder = 0
            return self._keep(reading, step, now, severity=reading.severity)
        self._age += 1
        is_news = reading.subject != self._subject or self._age >= REFRESH
        if is_news and reading.severity is not None:
            return self._keep(reading, step, now)
        return None

    def resolve(self, why: str, step: int | None, now: float) -> Alert:
        """Close the open alert."""
        assert self.alert is not None
        ended = self.alert.changed(
            state="resolved",
            last_step=step,
            updated_at=now,
            details={**self.alert.details, "resolved_by": why},
        )
        self.alert = None
        self._clear = self._milder = self._age = 0
        return ended

    def forget(self) -> None:
        """Begin to count anew, because a resume has made void what was counted."""
        self._streaks = dict.fromkeys(self._streaks, 0)
        self._clear = self._milder = 0

    def _count(self, reading: Reading, step: int | None) -> None:
        rank = -1 if reading.severity is None else RANK[reading.severity]
        if rank >= 0 and not any(self._streaks.values()):
            self._began = step
        for name in self._streaks:
            self._streaks[name] = self._streaks[name] + 1 if rank >= RANK[name] else 0
        self._clear = self._clear + 1 if reading.clear and rank < 0 else 0
        held = -1 if self.alert is None else RANK[self.alert.severity]
        self._milder = self._milder + 1 if 0 <= rank < held else 0

    def _open(self, severity: Severity, reading: Reading, step: int | None, now: float) -> Alert:
        rule = self._rule
        self.alert = Alert(
            id=f"{rule.name}/{self._environment}/{0 if self._began is None else self._began}",
            rule=rule.name,
            severity=severity,
            environment=self._environment,
            first_step=self._began,
            last_step=step,
            opened_at=now,
            updated_at=now,
            message=reading.message,
            explanations=rule.explanations,
            next=tuple(line.replace("{run}", self._run_id) for line in rule.next),
            source=rule.source,
        )
        return self._keep(reading, step, now)

    def _keep(self, reading: Reading, step: int | None, now: float, **changes: object) -> Alert:
        """Tell the newest reading under the same id."""
        assert self.alert is not None
        self._age = 0
        self._subject = reading.subject
        self.alert = self.alert.changed(
            last_step=step,
            updated_at=now,
            message=reading.message,
            value=reading.value,
            threshold=reading.threshold,
            evidence=reading.evidence or self.alert.evidence,
            details=dict(reading.details),
            **changes,
        )
        return self.alert
