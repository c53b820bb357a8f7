"""Folds a run's records, in the order of their time, into the history that rules look at."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from training_gym.records.health.history import (
    EARLY_STEPS,
    RECENT_STEPS,
    Clock,
    Evaluated,
    Facts,
    History,
    Open,
    Step,
)
from training_gym.records.health.occupation import Interval, occupation
from training_gym.records.health.plays import Play, Plays, environment_of, read_play

USUAL_OVER = 50
"""Pieces of work whose median duration is the usual one."""


class Observer:
    """What has been seen of one run so far."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._steps: list[Step] = []
        self._early: list[Step] = []
        self._evaluations: list[Evaluated] = []
        self._plays: dict[str, list[Play]] = {}
        self._intervals: list[Interval] = []
        self._durations: dict[str, deque[float]] = {}
        self._paces: deque[float] = deque(maxlen=USUAL_OVER)
        self._progress_at: float | None = None
        self._beats: dict[str, Mapping[str, Any]] = {}
        self._paused = False
        self._dropped = self._written = 0
        self.now = 0.0

    @property
    def step(self) -> int | None:
        """The newest step."""
        return self._steps[-1].number if self._steps else None

    def history(self) -> History:
        """What the rules look at."""
        return History(
            early=tuple(self._early),
            recent=tuple(self._steps[-RECENT_STEPS:]),
            evaluations=tuple(self._evaluations),
            clock=self._clock(),
            facts=self._facts,
            dropped=self._dropped,
            written=self._written,
        )

    def episode(self, record: Mapping[str, Any]) -> None:
        """An episode; those of evaluations are not looked at."""
        if record["episode"]["stream"] == "train":
            environment = environment_of(record, self._facts.environment)
            self._plays.setdefault(environment, []).append(read_play(record))

    def metrics(self, record: Mapping[str, Any]) -> bool:
        """Numbers; whether they end a step that was not seen before."""
        self._written += 1
        number = record["batch"]
        values = {name: float(value) for name, value in record["values"].items()}
        if number is None:
            return False
        if self._steps and number <= self._steps[-1].number:
            if number == self._steps[-1].number:  # more numbers about the same step
                merged = {**self._steps[-1].metrics, **values}
                self._replace_last(merged)
            return False
        self._end_step(number, record, values)
        return True

    def span(self, record: Mapping[str, Any]) -> None:
        """A finished piece of work."""
        self._written += 1
        component, start, end = record.get("component"), record.get("start"), record.get("end")
        if component is None or start is None or end is None:
            return
        usual = self._durations.setdefault(component, deque(maxlen=USUAL_OVER))
        usual.append(end - start)
        self._intervals.append(Interval(component, start, end))

    def evaluation(self, record: Mapping[str, Any]) -> bool:
        """An evaluation's result; whether it could be used."""
        values = [record.get(name) for name in ("mean", "low", "high")]
        if not all(isinstance(value, int | float) for value in values):
            return False
        mean, low, high = (float(value or 0.0) for value in values)
        self._evaluations.append(
            Evaluated(
                name=record["name"],
                step=record["batch"] or 0,
                mean=mean,
                error=(high - low) / 3.92,
                task_means=record.get("task_means") or {},
            )
        )
        self._progress_at = record["time"]
        return True

    def event(self, record: Mapping[str, Any]) -> None:
        """What changes what may be expected: starts, resumes, ends, pauses, losses."""
        kind = record["kind"]
        if kind == "attempt_started":
            self._start(record)
        elif kind == "attempt_ended":
            self._beats.clear()
            self._progress_at = None
        elif kind in ("paused", "unpaused"):
            self._paused = kind == "paused"
            self._progress_at = record["time"]
        elif kind == "records_dropped":
            self._dropped += sum(record.get("streams", {}).values())

    def heartbeat(self, record: Mapping[str, Any]) -> bool:
        """A sign of life; whether time has passed by it."""
        self._beats[record["writer"]] = record
        return bool(record["writer"] == "runner")

    def _start(self, record: Mapping[str, Any]) -> None:
        """Forget what a resume makes void."""
        point = record.get("resumed_from") or {}
        kept = (point.get("batch") or 0) if isinstance(point, dict) else 0
        self._steps = [step for step in self._steps if step.number <= kept]
        self._early = [step for step in self._early if step.number <= kept]
        self._evaluations = [found for found in self._evaluations if found.step <= kept]
        self._plays.clear()
        self._intervals.clear()
        # The new attempt's own first heartbeat comes before it says that training begins.
        self._beats = {
            name: beat for name, beat in self._beats.items() if beat["attempt"] == record["attempt"]
        }
        self._paused = False
        self._progress_at = record["time"]

    def _end_step(
        self, number: int, record: Mapping[str, Any], values: Mapping[str, float]
    ) -> None:
        environments = {name: Plays(tuple(plays)) for name, plays in self._plays.items()}
        if not environments:
            environments = {self._facts.environment: Plays(reported=values)}
        seconds = values.get("step_seconds", 0.0)
        end = record["monotonic"]
        busy, blame = occupation(self._intervals, end - seconds, end)
        step = Step(number, record["time"], values, environments, busy, blame)
        self._steps = [*self._steps[-(RECENT_STEPS - 1) :], step]
        if number <= EARLY_STEPS:
            self._early.append(step)
        self._plays.clear()
        self._intervals.clear()
        if self._progress_at is not None:
            self._paces.append(record["time"] - self._progress_at)
        self._progress_at = record["time"]

    def _replace_last(self, metrics: Mapping[str, float]) -> None:
        from dataclasses import replace

        step = replace(self._steps[-1], metrics=metrics)
        self._steps[-1] = step
        if self._early and self._early[-1].number == step.number:
            self._early[-1] = step

    def _clock(self) -> Clock:
        return Clock(
            now=self.now,
            silence_s={
                name: max(0.0, self.now - beat["time"]) for name, beat in self._beats.items()
            },
            # The runner beats only while the engine's process is there.
            alive={name: True for name in self._beats if name != "runner"},
            open=tuple(work for beat in self._beats.values() for work in self._open(beat)),
            step_age_s=None if self._progress_at is None else self.now - self._progress_at,
            usual_step_s=_median(self._paces),
            paused=self._paused,
        )

    def _open(self, beat: Mapping[str, Any]) -> list[Open]:
        since = max(0.0, self.now - beat["time"])
        return [
            Open(
                component=work["component"],
                age_s=work["age_s"] + since,
                count=work.get("count", 1),
                usual_s=_median(self._durations.get(work["component"], ())),
                what=work.get("what", ""),
            )
            for work in beat.get("open") or ()
        ]


def _median(values: Sequence[float] | deque[float]) -> float | None:
    return statistics.median(values) if values else None
