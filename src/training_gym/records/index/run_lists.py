"""Filtering and sorting rows of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from training_gym.records.index.run_values import RunOrder, RunPage, RunQuery, RunRow

_KEYS: dict[RunOrder, Callable[[RunRow], Any]] = {
    "created": lambda row: row.created_at,
    "name": lambda row: (row.name or row.run_id).lower(),
    "status": lambda row: row.status,
    "step": lambda row: row.step,
    "reward": lambda row: row.reward,
    "heartbeat": lambda row: row.heartbeat_at,
}


def page_of(rows: Sequence[RunRow], query: RunQuery) -> RunPage:
    """The page that a query asks for."""
    found = [row for row in rows if matches(row, query)]
    return RunPage(
        runs=tuple(ordered(found, query)[query.offset : query.offset + query.limit]),
        total=len(found),
        tags=tuple(sorted({tag for row in rows for tag in row.tags})),
        pending=sum(not row.indexed for row in rows),
    )


def matches(row: RunRow, query: RunQuery) -> bool:
    """Whether every condition that is given holds."""
    text = query.text.lower()
    return (
        (not query.status or row.status in query.status)
        and (not query.level or row.level in query.level)
        and set(query.tags) <= set(row.tags)
        and (query.model is None or query.model.lower() in row.model.lower())
        and (not text or any(text in part.lower() for part in _texts(row)))
    )


def ordered(rows: Sequence[RunRow], query: RunQuery) -> list[RunRow]:
    """By the asked key; runs without a value come last either way, ties by id."""
    key = _KEYS[query.order]
    with_value = sorted(rows, key=lambda row: row.run_id, reverse=query.descending)
    missing = [row for row in with_value if key(row) is None]
    present = [row for row in with_value if key(row) is not None]
    return sorted(present, key=key, reverse=query.descending) + missing


def _texts(row: RunRow) -> tuple[str, ...]:
    return (row.run_id, row.name or "", row.model, *row.tags)
