"""Saying that an alert has been seen: a record in the run's own `annotations` stream.

It holds until the alert worsens or opens anew. Anybody who can write to the run's folder can
acknowledge, also long after the run has ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from training_gym.records.health.alerts import Alert
from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory

KIND = "alert_acknowledged"
WITHDRAWN = "alert_reopened"


def acknowledge(
    run: RunDirectory, alerts: Sequence[str], *, by: str, note: str = "", withdraw: bool = False
) -> None:
    """Record that `by` has seen the alerts of these ids; `withdraw`: that it holds no more.

    Returns once the system has the records; raises `RecordsError` where it cannot be written.
    """
    attempt = max(run.attempts(), default=1)
    kind = WITHDRAWN if withdraw else KIND
    with Recorder(run, writer=f"viewer.{uuid.uuid4().hex[:8]}", attempt=attempt) as recorder:
        for alert in alerts:
            recorder.record("annotations", {"kind": kind, "alert": alert, "by": by, "note": note})


def acknowledged(run: RunDirectory, alerts: Iterable[Alert]) -> list[Alert]:
    """The alerts with what the run's annotations say of them."""
    return apply(alerts, read_stream(run, "annotations"))


def apply(alerts: Iterable[Alert], annotations: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """The alerts with what these annotations, oldest first, say of them."""
    newest: dict[str, Mapping[str, Any]] = {}
    for record in annotations:
        if record.get("kind") in (KIND, WITHDRAWN):
            newest[str(record.get("alert"))] = record
    return [_with(alert, newest.get(alert.id)) for alert in alerts]


def _with(alert: Alert, said: Mapping[str, Any] | None) -> Alert:
    if said is None or said["kind"] == WITHDRAWN:
        return alert
    if alert.worsened_at > said["time"]:
        return alert
    state = "acknowledged" if alert.state == "open" else alert.state
    return alert.changed(
        state=state, acknowledged_by=str(said.get("by", "")), note=str(said.get("note", ""))
    )
