"""When evaluations run, what is recorded of them, and what the run's finish line says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.engines.local.state import Progress
from training_gym.records.recorder import Recorder
from training_gym.rollouts.evaluation import Evaluated, Judge, evaluate
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.statistics import bootstrap_mean, paired_difference
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task


@dataclass(frozen=True)
class Suite:
    """One evaluation with everything it needs."""

    name: str
    tasks: Sequence[Task]
    runner: EpisodeRunner
    judge: Judge
    samples: int
    sampling: Sampling
    every: int | None


class Evaluations:
    """Runs the suites of a run."""

    def __init__(self, suites: Sequence[Suite], recorder: Recorder) -> None:
        """Record every episode and every result."""
        self._suites = suites
        self._recorder = recorder
        self._latest: dict[str, dict[str, float]] = {}

    async def before(self, progress: Progress) -> Progress:
        """The baseline, unless an earlier attempt has it."""
        missing = [suite for suite in self._suites if suite.name not in progress.evaluations]
        for suite in missing:
            result = await self._run(suite, progress, "baseline")
            found = {**progress.evaluations, suite.name: result.task_means}
            progress = progress.after(evaluations=found)
        return progress

    async def between(self, progress: Progress) -> dict[str, float]:
        """Whatever is due after this batch; returns `eval/<name>` metrics."""
        metrics = {}
        for suite in self._suites:
            if suite.every is not None and progress.batch % suite.every == 0:
                result = await self._run(suite, progress, "during")
                metrics[f"eval/{suite.name}"] = result.interval.mean
        return metrics

    async def after(self, progress: Progress) -> None:
        """The last evaluation of every suite."""
        for suite in self._suites:
            await self._run(suite, progress, "final")

    def summary(self, progress: Progress) -> dict[str, Any]:
        """Baseline, final result and their paired difference, first suite on top."""
        compared = {
            suite.name: _comparison(progress.evaluations[suite.name], self._latest[suite.name])
            for suite in self._suites
            if suite.name in progress.evaluations and suite.name in self._latest
        }
        if not compared:
            return {}
        first = next(iter(compared))
        return {"evaluation": first, **compared[first], "evaluations": compared}

    async def _run(self, suite: Suite, progress: Progress, phase: str) -> Evaluated:
        started = time.monotonic()
        self._recorder.event("evaluation_started", name=suite.name, phase=phase)
        result = await evaluate(
            suite.name,
            suite.tasks,
            suite.runner,
            suite.judge,
            samples=suite.samples,
            sampling=suite.sampling,
            counters=progress.counters,
        )
        for episode in result.episodes:
            self._recorder.episode(episode)
        interval = result.interval
        self._recorder.evaluation(
            counters=progress.counters,
            name=suite.name,
            phase=phase,
            mean=interval.mean,
            low=interval.low,
            high=interval.high,
            tasks=interval.count,
            episodes=len(result.episodes),
            missing=result.num_missing,
            components=result.component_means,
            task_means=result.task_means,
        )
        self._recorder.span("evaluation", started, time.monotonic(), evaluation=suite.name)
        if phase == "final":
            self._latest[suite.name] = result.task_means
        return result


def _comparison(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    return {
        "baseline": bootstrap_mean(list(before.values())).model_dump(),
        "final": bootstrap_mean(list(after.values())).model_dump(),
        "difference": paired_difference(before, after).model_dump(),
    }
