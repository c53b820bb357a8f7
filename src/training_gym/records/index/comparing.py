"""One run's part of a comparison."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence

from pydantic import JsonValue

from training_gym.records.index.curves import curves, literal, newest
from training_gym.records.index.evaluations import newest_of_each
from training_gym.records.index.run_values import ComparedRun, RunRow
from training_gym.records.index.series_values import SeriesQuery
from training_gym.spec.errors import RecordsError

MOST_RUNS = 50


def require_comparable(run_ids: Sequence[str]) -> None:
    """Raise `RecordsError` for no runs, or more than can be compared at once."""
    if not 1 <= len(run_ids) <= MOST_RUNS:
        raise RecordsError(f"{len(run_ids)} runs to compare", fix=f"name 1 to {MOST_RUNS} of them")


def compared(
    connection: sqlite3.Connection,
    row: RunRow,
    names: Sequence[str],
    settings: dict[str, JsonValue],
) -> ComparedRun:
    """Newest and greatest value of each metric, beside what sets the run apart."""
    return ComparedRun(
        row=row,
        values={name: newest(connection, name)[0] for name in names},
        best={name: _greatest(connection, row.run_id, name) for name in names},
        evaluations=newest_of_each(connection),
        settings=settings,
    )


def _greatest(connection: sqlite3.Connection, run_id: str, name: str) -> float | None:
    query = SeriesQuery(names=(literal(name),), max_points=100)
    drawn = curves(connection, run_id, query)
    if not drawn:
        return None
    values = drawn[0].high if drawn[0].high is not None else drawn[0].mean
    return max((value for value in values if not math.isnan(value)), default=None)
