"""Evaluations at both ends of what an explanation compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from training_gym.records.pairing import Difference, paired_difference
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory


@dataclass(frozen=True)
class Result:
    """What one evaluation came to."""

    mean: float
    task_means: Mapping[str, float]
    batches: int | None
    """Learned from before it; None: not recorded."""
    optimizer_step: int


@dataclass(frozen=True)
class Compared:
    """One suite's results before and after."""

    name: str
    before: Result
    after: Result
    difference: Difference | None
    """Task by task; None where they share no task."""

    @property
    def way(self) -> Literal["rose", "fell", ""]:
        """Where it moved, if it did beyond chance."""
        if self.difference is None:
            return ""
        return "rose" if self.difference.rose else "fell" if self.difference.fell else ""


def compared_evaluations(run: RunDirectory, first_step: int, last_step: int) -> list[Compared]:
    """Each suite with two results: from before the first step, and from after the last.

    Where there is none so early or so late, its very first and last results.
    """
    suites: dict[str, list[Result]] = {}
    for record in read_stream(run, "evaluations"):
        suites.setdefault(str(record.get("name")), []).append(_result(record))
    found = []
    for name, results in suites.items():
        before, after = _ends(results, first_step, last_step)
        if before is not after:
            difference = paired_difference(before.task_means, after.task_means)
            found.append(Compared(name, before, after, difference))
    return found


def _ends(results: Sequence[Result], first_step: int, last_step: int) -> tuple[Result, Result]:
    early = [r for r in results if r.batches is not None and r.batches < first_step]
    late = [r for r in results if r.batches is not None and r.batches >= last_step]
    return (early or results[:1])[-1], (late or results[-1:])[0]


def _result(record: Mapping[str, Any]) -> Result:
    means = record.get("task_means")
    return Result(
        mean=float(str(record.get("mean", "nan"))),
        task_means=means if isinstance(means, dict) else {},
        batches=record.get("batch"),
        optimizer_step=record.get("optimizer_step") or 0,
    )
