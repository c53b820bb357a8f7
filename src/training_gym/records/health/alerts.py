"""Alerts and verdicts as values. An alert's id is made of what it is about, not of when it is seen.

The run writes a record to its `alerts` stream whenever one opens, worsens, eases or resolves; the
last record of an id is what holds. Acknowledgements are records of the `annotations` stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import JsonValue

from training_gym.records.lines import RESERVED
from training_gym.spec.health import Severity
from training_gym.spec.settings import Settings

State = Literal["open", "acknowledged", "resolved"]
Level = Literal["healthy", "too_early", "degraded", "critical"]

RAISED = "raised by "
"""How the source of an alert begins that no rule found."""

RANK: dict[Severity, int] = {"advice": 0, "warning": 1, "critical": 2}


class Alert(Settings):
    """Something a health rule found, what may lie behind it, and what to do."""

    id: str
    """`rule/environment/first step`; the environment is empty for what concerns the whole run."""
    rule: str
    severity: Severity
    state: State = "open"
    environment: str = ""
    first_step: int | None = None
    """Batch at which it began: the first of the points that opened it."""
    last_step: int | None = None
    """Batch of the newest record about it."""
    opened_at: float
    """Seconds since 1970, by the run's own records."""
    updated_at: float
    worsened_at: float = 0.0
    """When it last became more severe; acknowledgements from before hold no more."""
    message: str
    """What was found, with numbers."""
    value: float | None = None
    threshold: float | None = None
    evidence: tuple[str, ...] = ()
    """Ids of episodes that show it; look at them with `training-gym episodes`."""
    explanations: tuple[str, ...] = ()
    """What may lie behind it, the likeliest first."""
    next: tuple[str, ...] = ()
    """What to do, in this order."""
    source: str = ""
    """Where the rule and its threshold come from."""
    acknowledged_by: str = ""
    note: str = ""
    details: dict[str, JsonValue] = {}

    @property
    def is_notice(self) -> bool:
        """Whether an engine mentioned it once and nobody follows whether it still holds."""
        return self.source.startswith(RAISED) and self.severity != "critical"

    def record(self) -> dict[str, Any]:
        """The fields of its record in the `alerts` stream."""
        return self.model_dump(mode="json", exclude={"acknowledged_by", "note"})


class Verdict(Settings):
    """How a run is, in one sentence."""

    level: Level
    sentence: str
    since_step: int | None = None
    """Batch since which it holds, where an alert decides."""
    rule: str = ""
    """The rule that decides, if one does."""


class Assessment(Settings):
    """The health of a run: the verdict first, then the alerts, worst and newest first."""

    run_id: str
    verdict: Verdict
    alerts: tuple[Alert, ...] = ()

    @property
    def open(self) -> tuple[Alert, ...]:
        """Alerts that nobody has acknowledged and that have not resolved."""
        return tuple(alert for alert in self.alerts if alert.state == "open")


def alerts_from(records: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """The newest state of each alert that a run's `alerts` stream tells of, in order of opening.

    Records without an id come from an engine that only raised something: each rule and message is
    one alert, open from its first to its last mention.
    """
    found: dict[str, Alert] = {}
    for record in records:
        alert = _alert(record)
        known = found.get(alert.id)
        if known is not None:
            alert = alert.changed(first_step=known.first_step, opened_at=known.opened_at)
        found[alert.id] = alert
    return list(found.values())


def _alert(record: Mapping[str, Any]) -> Alert:
    fields = {key: value for key, value in record.items() if key in Alert.model_fields}
    if "id" in record:
        return Alert.read(fields)
    others = {
        key: value
        for key, value in record.items()
        if key not in Alert.model_fields and key not in RESERVED
    }
    severity = fields.get("severity")
    return Alert(
        id=f"{record.get('rule', 'unnamed')}//{record['writer']}",
        rule=str(record.get("rule", "unnamed")),
        severity=severity if severity in RANK else "warning",
        first_step=record.get("batch"),
        last_step=record.get("batch"),
        opened_at=record["time"],
        updated_at=record["time"],
        message=str(record.get("message", "")),
        source=f"{RAISED}{record['writer']}",
        details=others,
    )


def by_weight(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Open ones first, then acknowledged, then resolved; the worst and the newest first."""
    places = {"open": 0, "acknowledged": 1, "resolved": 2}
    return tuple(
        sorted(
            alerts,
            key=lambda a: (places[a.state], -RANK[a.severity], -a.opened_at, a.id),
        )
    )
