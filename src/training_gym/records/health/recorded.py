"""Whether a run was watched while it trained, so that its `alerts` stream tells its alerts."""

from __future__ import annotations

from training_gym.records.health.alerts import Alert, alerts_from
from training_gym.records.health.replay import replay
from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.records.segments import segments

WRITER = "health"
"""Who writes alerts while a run trains, and says so in the events first."""


def was_watched(run: RunDirectory) -> bool:
    """Whether somebody watched the newest attempt."""
    newest = max(run.attempts(), default=1)
    return any(
        segment.writer == WRITER and segment.attempt == newest
        for segment in segments(run.streams / "events")
    )


def alerts_of(run: RunDirectory) -> list[Alert]:
    """The recorded alerts of a run that was watched; those a replay gives for one that was not.

    What the engine itself raised is there in either case.
    """
    recorded = alerts_from(read_stream(run, "alerts"))
    if was_watched(run):
        return recorded
    replayed = replay(run)
    seen = {alert.id for alert in replayed}
    return [*replayed, *(alert for alert in recorded if alert.id not in seen)]


def record_alerts(run: RunDirectory, attempt: int = 1) -> list[Alert]:
    """Watch a finished run once and write its alerts, as if it had been watched while it trained.

    For runs made of files, such as demonstrations and imports.
    """
    from training_gym.records.health.replay import changes

    found = list(changes(run))
    with Recorder(run, writer=WRITER, attempt=attempt) as recorder:
        recorder.event("health_started", rules_off=[])
        for alert in found:
            recorder.record("alerts", alert.record())
    return found
