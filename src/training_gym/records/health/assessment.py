"""How a run is: its verdict and alerts, from its files alone, while it runs or long after."""

from __future__ import annotations

from pathlib import Path

from training_gym.records.health.acknowledgement import acknowledged
from training_gym.records.health.alerts import Assessment, alerts_from, by_weight
from training_gym.records.health.verdict import Standing, verdict_of
from training_gym.records.readers import read_stream
from training_gym.records.results import read_result
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import run_status

COMPARED = 5
"""Steps at either end whose mean rewards the verdict compares."""


def assess(run: RunDirectory | Path) -> Assessment:
    """The verdict and the alerts of a run; raises `RecordsError` where it cannot be read."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory(run)
    alerts = acknowledged(directory, alerts_from(read_stream(directory, "alerts")))
    return Assessment(
        run_id=directory.run_id,
        verdict=verdict_of(alerts, _standing(directory)),
        alerts=by_weight(alerts),
    )


def _standing(run: RunDirectory) -> Standing:
    rewards, steps = [], 0
    for record in read_stream(run, "metrics"):
        steps = max(steps, record["batch"] or 0)
        reward = record["values"].get("reward_mean")
        if isinstance(reward, int | float):
            rewards.append(float(reward))
    result = read_result(run)
    first, now = rewards[:COMPARED], rewards[-COMPARED:]
    return Standing(
        status=run_status(run),
        steps=steps,
        reward_first=sum(first) / len(first) if first else None,
        reward_now=sum(now) / len(now) if now else None,
        reason="" if result is None else result.reason,
    )
