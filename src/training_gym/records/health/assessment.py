"""How a run is: its verdict and alerts, from its files alone, while it runs or long after."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training_gym.records.health.acknowledgement import acknowledged
from training_gym.records.health.alerts import Alert, Assessment, by_weight
from training_gym.records.health.facts import health_of
from training_gym.records.health.history import Clock, History
from training_gym.records.health.lifecycle import Gauge
from training_gym.records.health.recorded import alerts_of
from training_gym.records.health.rules import RULES
from training_gym.records.health.verdict import Standing, verdict_of
from training_gym.records.readers import last_record, read_stream
from training_gym.records.results import read_result
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import run_status

COMPARED = 5
"""Steps at either end whose mean rewards the verdict compares."""


@dataclass(frozen=True)
class Course:
    """How far a run has come, as its metrics tell it."""

    steps: int
    rewards: Sequence[float]
    """Mean reward of each batch that shows, oldest first."""


def assess(
    run: RunDirectory | Path, *, now: float | None = None, course: Course | None = None
) -> Assessment:
    """The verdict and the alerts of a run; raises `RecordsError` where it cannot be read.

    Args:
        run: which run.
        now: seconds since 1970, to see whether a running job still beats; None: by the clock.
        course: what the caller knows already; None: all of the run's metrics are read for it.
    """
    directory = run if isinstance(run, RunDirectory) else RunDirectory(run)
    standing = _standing(directory, course or _course(directory))
    alerts = alerts_of(directory)
    if standing.status == "running" and not any(alert.rule == "heartbeat" for alert in alerts):
        alerts += _silence(directory, time.time() if now is None else now)
    if standing.status in ("completed", "stopped"):
        alerts = [_outlived(alert) for alert in alerts]
    alerts = acknowledged(directory, alerts)
    return Assessment(
        run_id=directory.run_id,
        verdict=verdict_of(alerts, standing),
        alerts=by_weight(alerts),
    )


def _outlived(alert: Alert) -> Alert:
    """What a watchdog had found is over when the run has ended in order: nothing is stuck."""
    watched = any(rule.name == alert.rule and rule.scope == "clock" for rule in RULES)
    if not watched or alert.state == "resolved":
        return alert
    details = {**alert.details, "resolved_by": "the run ended in order"}
    return alert.changed(state="resolved", details=details)


def _silence(run: RunDirectory, now: float) -> list[Alert]:
    """An alert about the job runner itself, which cannot tell of its own silence."""
    beat = last_record(run, "heartbeat", writer="runner")
    health = health_of(run)
    if beat is None or "heartbeat" in health.off:
        return []
    rule = next(rule for rule in RULES if rule.name == "heartbeat")
    history = History(clock=Clock(now, silence_s={"runner": now - beat["time"]}))
    reading = rule.measure(history, "", health.thresholds)
    if reading is None or reading.severity is None:
        return []
    gauge = Gauge(rule, "", run.run_id)
    opened = [gauge.take(reading, beat["batch"], now) for _ in range(rule.points)][-1]
    return [] if opened is None else [opened]


def _course(run: RunDirectory) -> Course:
    rewards, steps = [], 0
    for record in read_stream(run, "metrics"):
        steps = max(steps, record["batch"] or 0)
        reward = record["values"].get("reward_mean")
        if isinstance(reward, int | float):
            rewards.append(float(reward))
    return Course(steps, rewards)


def _standing(run: RunDirectory, course: Course) -> Standing:
    result = read_result(run)
    first, now = course.rewards[:COMPARED], course.rewards[-COMPARED:]
    return Standing(
        status=run_status(run),
        steps=course.steps,
        reward_first=sum(first) / len(first) if first else None,
        reward_now=sum(now) / len(now) if now else None,
        reason="" if result is None else result.reason,
        paused=is_paused(run),
    )


def is_paused(run: RunDirectory) -> bool:
    """Whether the run holds between two steps until it is told to go on."""
    for record in reversed(read_stream(run, "events")):
        if record["kind"] in ("paused", "unpaused", "attempt_started", "attempt_ended"):
            return bool(record["kind"] == "paused")
    return False
