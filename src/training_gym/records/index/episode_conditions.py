"""What a query asks of episodes, as SQL."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from training_gym.records.index.episode_heads import STATUSES, TRAIN
from training_gym.records.index.episode_rows import EQUAL, Policy
from training_gym.records.index.episode_values import EpisodeQuery, Range
from training_gym.records.index.schema import COMPONENT_COLUMNS


@dataclass(frozen=True)
class Condition:
    """SQL that holds for the episodes asked for, and its values."""

    sql: str
    values: tuple[Any, ...]


FEW = 1000
"""Episodes that may be listed by their numbers."""


def count(connection: sqlite3.Connection, condition: Condition) -> int:
    """How many episodes there are."""
    row = connection.execute(
        f"SELECT count(*) FROM episodes e WHERE {condition.sql}", condition.values
    ).fetchone()
    return int(row[0])


def counted(connection: sqlite3.Connection, condition: Condition) -> tuple[Condition, int]:
    """The condition, and how many episodes meet it.

    Where these are few it becomes the list of them: otherwise whoever wants them in some order
    would look at all episodes once more.
    """
    found = connection.execute(
        f"SELECT e.id FROM episodes e WHERE {condition.sql} LIMIT ?",
        (*condition.values, FEW + 1),
    ).fetchall()
    if len(found) > FEW:
        return condition, count(connection, condition)
    numbers = ", ".join(str(number) for (number,) in found)
    return Condition(f"e.id IN ({numbers})", ()), len(found)


def condition_of(connection: sqlite3.Connection, query: EpisodeQuery, policy: Policy) -> Condition:
    """Everything of a query but `text` and `error`."""
    parts: list[tuple[str, tuple[Any, ...]]] = []
    if not query.hidden:
        parts.append(("e.hidden = 0", ()))
    if query.stream is not None:
        parts.append(_stream(connection, query.stream))
    if query.environment is not None:
        parts.append(("e.environment = ?", (_word(connection, query.environment),)))
    if query.group is not None:
        parts.append(("e.in_group IN (SELECT id FROM groups WHERE key = ?)", (query.group,)))
    if query.task is not None:
        parts.append(("e.in_group IN (SELECT id FROM groups WHERE task = ?)", (query.task,)))
    if query.status:
        marks = ", ".join(str(STATUSES.index(status)) for status in query.status)
        parts.append((f"e.status IN ({marks})", ()))
    if query.judged is not None:
        parts.append((f"e.reward IS {'NOT ' if query.judged else ''}NULL", ()))
    for name, bounds in (
        ("e.step", query.step),
        ("e.reward", query.reward),
        ("e.tokens", query.length),
        ("e.staleness", query.staleness),
    ):
        parts += _within(name, bounds)
    if query.since is not None:
        parts.append(("e.time > ?", (query.since,)))
    if query.component is not None:
        name = component_column(connection, query.component)
        parts.append((f"{name} IS NOT NULL", ()))
        parts += _within(name, query.component_value)
    if query.discarded is not None:
        parts.append(_discarded(connection, query.discarded, policy))
    sql = " AND ".join(part for part, _ in parts) or "1"
    return Condition(sql, tuple(value for _, values in parts for value in values))


def component_column(connection: sqlite3.Connection, name: str) -> str:
    """SQL for the value of a component of the reward."""
    row = connection.execute("SELECT place FROM components WHERE name = ?", (name,)).fetchone()
    if row is None:
        return "NULL"
    if row[0] < COMPONENT_COLUMNS:
        return f"e.c{row[0]}"
    path = json.dumps(f'$."{name}"').replace("'", "''")[1:-1].replace('\\"', '"')
    return (
        "(SELECT json_extract(components, '" + path + "') FROM episode_texts x WHERE x.id = e.id)"
    )


def _discarded(
    connection: sqlite3.Connection, wanted: bool, policy: Policy
) -> tuple[str, tuple[Any, ...]]:
    train = _word(connection, TRAIN)
    failed = STATUSES.index("infrastructure_failed")
    equal = ""
    if policy.skips_equal_groups:
        equal = (
            f" OR e.in_group IN (SELECT id FROM groups WHERE judged > 1 AND high - low < {EQUAL})"
        )
    sql = f"(e.dropped = 1 OR e.status = {failed} OR e.reward IS NULL{equal})"
    if wanted:
        return f"(e.stream = ? AND {sql})", (train,)
    return f"(e.stream <> ? OR NOT {sql})", (train,)


def _stream(connection: sqlite3.Connection, name: str) -> tuple[str, tuple[Any, ...]]:
    if name == "eval":
        return "e.stream <> ?", (_word(connection, TRAIN),)
    return "e.stream = ?", (_word(connection, name),)


def _word(connection: sqlite3.Connection, word: str) -> int:
    row = connection.execute("SELECT id FROM words WHERE word = ?", (word,)).fetchone()
    return -1 if row is None else int(row[0])


def _within(name: str, bounds: Range | None) -> list[tuple[str, tuple[Any, ...]]]:
    if bounds is None:
        return []
    parts: list[tuple[str, tuple[Any, ...]]] = []
    if bounds.low is not None:
        parts.append((f"{name} >= ?", (bounds.low,)))
    if bounds.high is not None:
        parts.append((f"{name} <= ?", (bounds.high,)))
    return parts
