"""Alerts by HTTP POST: a queue and a thread, retries, and an event for what could not be told.

Nothing ever waits for a receiver: when the queue is full, the oldest message goes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from training_gym.records.health.alerts import RANK, Alert
from training_gym.records.recorder import Recorder
from training_gym.spec.errors import GymError
from training_gym.spec.health import Webhook

SCHEMA = "health.alert/1"
TIMEOUT_S = 10.0
DELAYS_S = (0.0, 1.0, 4.0, 16.0)
"""Waiting before each try; there are no more tries than these."""
MAX_WAITING = 100
LAST_CHANCE_S = 5.0
"""How long the end of a run waits for what is still to be sent."""


class Webhooks:
    """Sends alerts to the addresses of a definition."""

    def __init__(self, run_id: str, hooks: Sequence[Webhook], recorder: Recorder) -> None:
        """Addresses named by a secret are read from the environment now."""
        self._run_id, self._recorder = run_id, recorder
        self._addresses = [(hook, _address(hook)) for hook in hooks]
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque(maxlen=MAX_WAITING)
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="webhooks", daemon=True)

    def __enter__(self) -> Self:
        if self._addresses:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._addresses:
            self._thread.join(LAST_CHANCE_S)

    def send(self, alert: Alert) -> None:
        """Tell everybody who wants to hear of alerts this severe; returns at once."""
        for hook, address in self._addresses:
            if RANK[alert.severity] >= RANK[hook.severity]:
                with self._changed:
                    self._waiting.append((address, message_of(self._run_id, alert)))
                    self._changed.notify_all()

    def _work(self) -> None:
        import httpx

        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False) as client:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closing)
                    if not self._waiting:
                        return
                    address, message = self._waiting.popleft()
                self._deliver(client, address, message)

    def _deliver(self, client: Any, address: str, message: dict[str, Any]) -> None:
        import httpx

        failure = "no address: its variable is not set"
        for delay_s in DELAYS_S if address else ():
            self._sleep(delay_s)
            try:
                answer = client.post(address, json=message)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = type(error).__name__
                continue
            if answer.is_success:
                return
            failure = f"status {answer.status_code}"
            if answer.status_code < 500 and answer.status_code not in (408, 429):
                break  # trying again would not help
        with suppress(GymError, RuntimeError):  # a full disk; a run that has ended meanwhile
            # Addresses are often secrets themselves: only the host is told.
            host = urlsplit(address).hostname
            self._recorder.event(
                "webhook_failed", host=host, alert=message["alert"]["id"], failure=failure
            )

    def _sleep(self, seconds: float) -> None:
        """Wait, but no longer once the run has ended."""
        until = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._closing, max(0.0, until - time.monotonic()))


def message_of(run_id: str, alert: Alert) -> dict[str, Any]:
    """What is posted; `text` is what chat services show."""
    sign = "resolved" if alert.state == "resolved" else alert.severity
    since = "" if alert.first_step is None else f" (since step {alert.first_step})"
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "text": f"{sign}: {run_id}: {alert.message}{since}",
        "alert": alert.model_dump(mode="json"),
    }


def _address(hook: Webhook) -> str:
    return hook.url or os.environ.get(hook.url_secret or "", "")
