"""What the loop knows between two batches, and what a resume takes up again."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from training_gym.spec.episodes import Counters
from training_gym.spec.settings import Settings

STATE_FILE = "engine.json"


class Visit(Settings):
    """One draw of a task."""

    task: str
    """Its id."""
    number: int
    """Of the draw."""


class Progress(Settings):
    """The loop's position; a new value after every batch."""

    batch: int = 0
    """Batches learned from."""
    optimizer_step: int = 0
    policy_version: int = 0
    drawn: int = 0
    """Tasks drawn so far, which numbers their visits."""
    tasks: dict[str, JsonValue] = {}
    """Position in the stream of tasks."""
    pending: tuple[Visit, ...] = ()
    """Tasks that were drawn and not learned from: what was in play when the position was kept."""
    evaluations: dict[str, dict[str, float]] = {}
    """Mean score of each task at the first evaluation, by evaluation."""
    num_unchanged: int = 0
    """Batches that changed nothing."""
    num_judged: int = 0
    num_failed: int = 0

    @property
    def counters(self) -> Counters:
        """The three counters as records carry them."""
        return Counters(
            batch=self.batch,
            optimizer_step=self.optimizer_step,
            policy_version=self.policy_version,
        )

    def after(self, **values: Any) -> Progress:
        """The position with some values replaced."""
        return self.model_copy(update=values)
