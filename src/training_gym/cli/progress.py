"""What a run is doing right now, from its records: step, reward, speed, time left."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training_gym.records.run_directory import RunDirectory

SCORES = {"reward_mean": "reward", "loss": "loss"}
"""Metrics that say what a batch was worth, and what people call them; the first found is shown."""
TOKENS = ("sampled_tokens", "train_tokens")
"""Metrics that count a batch's tokens; the first found is shown as a speed."""
SECONDS = "step_seconds"
"""Metric that every batch has: how long it took."""
RECENT = 8
"""Steps from whose durations the time left is estimated."""


@dataclass(frozen=True)
class Progress:
    """One look at a run."""

    step: int
    """Batches learned from so far."""
    num_steps: int | None
    score: tuple[str, float] | None
    """What the newest batch was worth, and what that number is called."""
    tokens_per_s: float | None
    seconds_left: float | None
    phase: str
    """What happens outside of steps, such as an evaluation; empty during a step."""

    def words(self) -> str:
        """The look as one line."""
        from training_gym.cli.output import number, span

        total = "" if self.num_steps is None else f"/{self.num_steps}"
        parts = [f"step {self.step}{total}"]
        if self.score is not None:
            parts.append(f"{self.score[0]} {number(self.score[1])}")
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{span(self.seconds_left)} left")
        if self.phase:
            parts.append(self.phase)
        return " · ".join(parts)


class Watch:
    """Follows a run's metrics and events; each look reads only what is new."""

    def __init__(self, run: RunDirectory) -> None:
        """Begin to watch; `run` need not have recorded anything yet."""
        self._run = run
        self._num_steps = _num_steps(run)
        self._metrics = self._events = ""
        self._seconds: list[float] = []
        self._step = 0
        self._values: dict[str, Any] = {}
        self._phase = "starting"

    def look(self) -> Progress:
        """Read what is new and say where the run stands."""
        from training_gym.records.readers import read_page

        events = read_page(self._run, "events", since=self._events)
        metrics = read_page(self._run, "metrics", since=self._metrics)
        self._events, self._metrics = events.cursor, metrics.cursor
        for record in sorted((*events.records, *metrics.records), key=lambda r: r["time"]):
            if "values" in record:
                self._count(record)
            else:
                self._hear(record)
        return Progress(
            step=self._step,
            num_steps=self._num_steps,
            score=self._score(),
            tokens_per_s=self._speed(),
            seconds_left=self._seconds_left(),
            phase=self._phase,
        )

    def _hear(self, event: dict[str, Any]) -> None:
        if event["kind"] == "attempt_started":
            self._seconds, self._values = [], {}
            self._phase = "starting"
        elif event["kind"] == "model_loaded":
            self._phase = "model loaded"
        elif event["kind"] == "evaluation_started":
            self._phase = f"evaluating {event.get('name', '')}"

    def _count(self, record: dict[str, Any]) -> None:
        seconds = _finite(record["values"].get(SECONDS))
        if seconds is None:
            return
        self._step = record["batch"] or self._step
        self._values = record["values"]
        self._seconds = [*self._seconds[1 - RECENT :], seconds]
        self._phase = ""

    def _score(self) -> tuple[str, float] | None:
        for name, called in SCORES.items():
            value = _finite(self._values.get(name))
            if value is not None:
                return called, value
        return None

    def _speed(self) -> float | None:
        seconds = _finite(self._values.get(SECONDS))
        counts = (_finite(self._values.get(name)) for name in TOKENS)
        tokens = next((count for count in counts if count is not None), None)
        return tokens / seconds if tokens is not None and seconds else None

    def _seconds_left(self) -> float | None:
        if self._num_steps is None or not self._seconds:
            return None
        return statistics.median(self._seconds) * max(0, self._num_steps - self._step)


def _num_steps(run: RunDirectory) -> int | None:
    recipe = run.manifest.run.get("recipe")
    steps = recipe.get("num_steps") if isinstance(recipe, dict) else None
    return steps if isinstance(steps, int) else None


def _finite(value: Any) -> float | None:
    """Records hold NaN and infinities as strings: those are no progress to show."""
    return float(value) if isinstance(value, int | float) else None
