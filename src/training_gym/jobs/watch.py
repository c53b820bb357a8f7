"""Watching a run's health while it trains: a thread of the job runner, which only reads records.

The engine never waits for it and knows nothing of it. It writes the alerts that a replay of the
same records gives, sets off what the definition allows, and tells whoever wants to hear.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from training_gym.jobs.control import request
from training_gym.jobs.webhooks import Webhooks
from training_gym.records.health.alerts import Alert, alerts_from
from training_gym.records.health.facts import facts_of, health_of
from training_gym.records.health.feed import SETTLED_S, Feed, Item
from training_gym.records.health.monitor import STREAMS, Monitor
from training_gym.records.health.recorded import WRITER
from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError
from training_gym.spec.health import Action, RuleName
from training_gym.spec.job import ControlKind

PERIOD_S = 2.0
"""How often new records are looked at."""

REQUESTS: dict[Action, tuple[ControlKind, ...]] = {
    "checkpoint": ("checkpoint",),
    "pause": ("checkpoint", "pause"),
    "stop": ("stop",),
}
"""What an action asks of the job; a stop writes its checkpoint itself."""


class HealthWatch:
    """Watches one attempt. `close()` looks once more at everything, then stops."""

    def __init__(self, run: RunDirectory, attempt: int) -> None:
        """Begin at once."""
        self._run, self._attempt = run, attempt
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return once all records so far have been looked at."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - a thread's boundary: training goes on unwatched
            print(f"health is no longer watched: {error!r}", file=sys.stderr)  # noqa: T201

    def _watch(self) -> None:
        health = health_of(self._run)
        monitor = Monitor(self._run.run_id, facts_of(self._run), health)
        feed = Feed(self._run, STREAMS)
        known = {alert.id: alert for alert in alerts_from(read_stream(self._run, "alerts"))}
        with (
            Recorder(self._run, writer=WRITER, attempt=self._attempt) as recorder,
            Webhooks(self._run.run_id, health.webhooks, recorder) as webhooks,
        ):
            with suppress(GymError):
                recorder.event("health_started", rules_off=list(health.off))
            told = _Telling(self._run, recorder, webhooks, health.actions, known)
            while not self._closing.wait(PERIOD_S):
                told.tell(_seen(monitor, feed.new(before=time.time() - SETTLED_S)))
            told.tell(_seen(monitor, feed.new()))


def _seen(monitor: Monitor, items: Iterable[Item]) -> Iterable[Alert]:
    for stream, record in items:
        yield from monitor.take(stream, record)


class _Telling:
    """What becomes of an alert that has changed."""

    def __init__(
        self,
        run: RunDirectory,
        recorder: Recorder,
        webhooks: Webhooks,
        actions: dict[RuleName, Action],
        known: dict[str, Alert],
    ) -> None:
        self._run, self._recorder, self._webhooks = run, recorder, webhooks
        self._actions = {str(rule): action for rule, action in actions.items()}
        self._known = known
        self._acted: set[str] = set()

    def tell(self, changed: Iterable[Alert]) -> None:
        """Record, act, send; what an earlier attempt has told already is not told again."""
        for alert in changed:
            before = self._known.get(alert.id)
            if before is not None and before.updated_at >= alert.updated_at:
                continue
            self._known[alert.id] = alert
            with suppress(GymError):  # a full disk is the engine's to report
                self._recorder.record("alerts", alert.record())
            if before is None or before.severity != alert.severity or alert.state == "resolved":
                self._webhooks.send(alert)
            self._act(alert)

    def _act(self, alert: Alert) -> None:
        action = self._actions.get(alert.rule)
        if action is None or alert.severity != "critical" or alert.state != "open":
            return
        if alert.id in self._acted:
            return
        self._acted.add(alert.id)
        with suppress(GymError):
            asked = [request(self._run, kind) for kind in REQUESTS[action]]
            self._recorder.event("health_acted", alert=alert.id, action=action, requests=asked)
