"""Evaluations of a run: suites at checkpoints, and the tasks that flipped between two of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from training_gym.records.checkpoints import list_checkpoints
from training_gym.records.index.record_reading import figure_of
from training_gym.records.index.run_values import Figure
from training_gym.records.index.stream_values import EvaluationRow, Flipped, FlippedTask
from training_gym.records.pairing import paired_difference
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError

_Found = tuple[float, int | None, int | None, dict[str, Any]]
"""Time, batch, optimizer step and own fields of an evaluation's record."""


def evaluations(run: RunDirectory, connection: sqlite3.Connection) -> tuple[EvaluationRow, ...]:
    """Every evaluation that shows, by suite, then step."""
    checkpoints = {found.step: str(found.folder) for found in list_checkpoints(run)}
    first: dict[str, Mapping[str, float]] = {}
    rows = []
    for moment, batch, step, fields in _all(connection):
        suite, means = str(fields.get("name", "")), _means(fields)
        difference = None
        if suite in first:
            difference = paired(suite, first[suite], means, batch or 0)
        else:
            first[suite] = means
        rows.append(
            EvaluationRow(
                suite=suite,
                phase=str(fields.get("phase", "")),
                figure=figure_of(fields, batch),
                optimizer_step=step,
                checkpoint=checkpoints.get(-1 if step is None else step, ""),
                episodes=fields.get("episodes", 0),
                missing=fields.get("missing", 0),
                components=fields.get("components") or {},
                difference=difference,
                time=moment,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.suite, row.figure.step, row.time)))


def paired(
    suite: str, before: Mapping[str, float], after: Mapping[str, float], step: int
) -> Figure | None:
    """Mean of after - before over the tasks that both have; None where they share no task."""
    found = paired_difference(before, after)
    return None if found is None else Figure(name=suite, step=step, **asdict(found))


def flipped(
    run: RunDirectory,
    connection: sqlite3.Connection,
    suite: str,
    before_step: int,
    after_step: int,
    threshold: float,
) -> Flipped:
    """Tasks that one evaluation solved and the other did not."""
    if before_step == after_step:
        raise RecordsError(
            f"the evaluation at step {before_step} is not compared with itself",
            fix="name two steps; training-gym runs show lists those of each evaluation",
        )
    before, after = (
        _means(_at(run, connection, suite, step)) for step in (before_step, after_step)
    )
    gained: list[FlippedTask] = []
    lost: list[FlippedTask] = []
    unchanged = 0
    for task in sorted(before.keys() & after.keys()):
        was, now = before[task] >= threshold, after[task] >= threshold
        if was == now:
            unchanged += 1
            continue
        (lost if was else gained).append(
            FlippedTask(
                task=task,
                before=before[task],
                after=after[task],
                before_episodes=_episodes(connection, suite, before_step, task),
                after_episodes=_episodes(connection, suite, after_step, task),
            )
        )
    return Flipped(
        suite=suite,
        before_step=before_step,
        after_step=after_step,
        threshold=threshold,
        gained=tuple(gained),
        lost=tuple(lost),
        unchanged=unchanged,
    )


def newest_of_each(connection: sqlite3.Connection) -> tuple[Figure, ...]:
    """The newest figure of every suite, by name."""
    found = {
        str(fields.get("name", "")): (fields, batch) for _, batch, _, fields in _all(connection)
    }
    return tuple(figure_of(*found[suite]) for suite in sorted(found))


def _all(connection: sqlite3.Connection) -> list[_Found]:
    return [
        (moment, batch, step, json.loads(fields))
        for moment, batch, step, fields in connection.execute(
            "SELECT time, batch, optimizer_step, fields FROM records"
            " WHERE stream = 'evaluations' AND hidden = 0 ORDER BY attempt, time, id"
        )
    ]


def _at(run: RunDirectory, connection: sqlite3.Connection, suite: str, step: int) -> dict[str, Any]:
    found = [f for _, batch, _, f in _all(connection) if f.get("name") == suite and batch == step]
    if not found:
        steps = sorted({b or 0 for _, b, _, f in _all(connection) if f.get("name") == suite})
        raise RecordsError(
            f"run {run.run_id} has no evaluation {suite!r} at step {step}",
            fix=f"it has steps {', '.join(map(str, steps))}"
            if steps
            else f"list them: training-gym runs show {run.run_id}",
        )
    return found[-1]


def _means(fields: Mapping[str, Any]) -> dict[str, float]:
    means = fields.get("task_means") or {}
    return {str(t): float(v) for t, v in means.items() if isinstance(v, int | float)}


def _episodes(connection: sqlite3.Connection, suite: str, step: int, task: str) -> Sequence[str]:
    return tuple(
        key
        for (key,) in connection.execute(
            "SELECT e.key FROM groups g JOIN episodes e ON e.in_group = g.id"
            " WHERE g.task = ? AND e.step = ? AND e.hidden = 0"
            " AND e.stream = (SELECT id FROM words WHERE word = ?) ORDER BY e.member, e.id",
            (task, step, f"eval:{suite}"),
        )
    )
