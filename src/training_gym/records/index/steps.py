"""Training episodes summed up: by batch, and as a histogram."""

from __future__ import annotations

import math
import sqlite3

from training_gym.records.index.episode_conditions import component_column, condition_of
from training_gym.records.index.episode_heads import STATUSES, TRAIN
from training_gym.records.index.episode_rows import Policy
from training_gym.records.index.episode_values import EpisodeQuery, Histogram, StepRow
from training_gym.records.index.series_values import require_interval
from training_gym.spec.errors import RecordsError

_COLUMNS = {
    "reward": "e.reward",
    "length": "e.tokens",
    "duration": "e.duration_s",
    "staleness": "e.staleness",
}


def steps(
    connection: sqlite3.Connection, first: int | None, last: int | None
) -> tuple[StepRow, ...]:
    """Each batch from `first` to `last`, oldest first; raises `SpecError` for an empty range."""
    require_interval("first", first, "last", last)
    low, high = first if first is not None else -1, last if last is not None else 2**62
    groups: dict[int, tuple[int, int]] = {
        step: (count, equal)
        for step, count, equal in connection.execute(
            "SELECT step, count(*), sum(judged > 1 AND high - low < 1e-6) FROM groups"
            " WHERE stream = (SELECT id FROM words WHERE word = ?) AND size > 0"
            " AND step BETWEEN ? AND ? GROUP BY step",
            (TRAIN, low, high),
        )
    }
    failed, truncated = (STATUSES.index(name) for name in ("infrastructure_failed", "truncated"))
    return tuple(
        StepRow(
            step=row[0],
            episodes=row[1],
            groups=groups.get(row[0], (0, 0))[0],
            equal_groups=groups.get(row[0], (0, 0))[1],
            judged=row[2],
            failed=row[3],
            truncated=row[4],
            mean=row[5],
            low=row[6],
            high=row[7],
            mean_tokens=row[8],
        )
        for row in connection.execute(
            "SELECT step, count(*), count(reward), sum(status = ?), sum(status = ?),"
            " avg(reward), min(reward), max(reward), avg(tokens) FROM episodes"
            " WHERE stream = (SELECT id FROM words WHERE word = ?) AND hidden = 0"
            " AND step BETWEEN ? AND ? GROUP BY step ORDER BY step",
            (failed, truncated, TRAIN, low, high),
        )
    )


def histogram(
    connection: sqlite3.Connection, query: EpisodeQuery, policy: Policy, of: str, bins: int
) -> Histogram:
    """How the episodes that match are spread over `of`, in `bins` equal steps."""
    if query.text or query.error:
        raise RecordsError(
            "a histogram takes no condition on text or error", fix="leave out text and error"
        )
    if not 1 <= bins <= 1000:
        raise RecordsError(f"{bins} bins", fix="ask for 1 to 1000")
    column = _COLUMNS.get(of) or component_column(connection, of)
    condition = condition_of(connection, query, policy)
    values: list[float] = []
    missing = 0
    for (value,) in connection.execute(
        f"SELECT {column} FROM episodes e WHERE {condition.sql}", condition.values
    ):
        if value is None or not math.isfinite(value):
            missing += 1
        else:
            values.append(value)
    if not values:
        return Histogram(edges=(0.0, 1.0), counts=(0,), missing=missing)
    low, high = min(values), max(values)
    width = (high - low) / bins
    if width <= 0 or not math.isfinite(width):
        return Histogram(edges=(low, high), counts=(len(values),), missing=missing)
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / width), bins - 1)] += 1
    edges = (*(low + width * place for place in range(bins)), high)
    return Histogram(edges=edges, counts=tuple(counts), missing=missing)
