"""The alerts of a run from its records alone, long after, with its own or with other thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training_gym.records.health.alerts import Alert
from training_gym.records.health.facts import facts_of, health_of
from training_gym.records.health.feed import Feed
from training_gym.records.health.monitor import STREAMS, Monitor
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.health import Health


def replay(
    run: RunDirectory | Path, *, up_to: int | None = None, health: Health | None = None
) -> list[Alert]:
    """The newest state of every alert, in order of opening: what the run itself recorded.

    Args:
        run: whose records.
        up_to: stop after this step; None: go to the end.
        health: other thresholds; None: those in the run's manifest.
    """
    found: dict[str, Alert] = {}
    for alert in changes(run, up_to=up_to, health=health):
        found[alert.id] = alert
    return list(found.values())


def changes(
    run: RunDirectory | Path, *, up_to: int | None = None, health: Health | None = None
) -> Iterator[Alert]:
    """Every change of an alert in the order in which the run would have recorded it."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory(run)
    monitor = Monitor(directory.run_id, facts_of(directory), health or health_of(directory))
    for stream, record in Feed(directory, STREAMS).new():
        step = monitor.step
        if up_to is not None and step is not None and step >= up_to:
            return
        yield from monitor.take(stream, record)
