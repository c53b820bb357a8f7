"""Pages of episodes: conditions become SQL, a search for text reads the files, cursors go on."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.records.index.episode_conditions import FEW, Condition, condition_of, counted
from training_gym.records.index.episode_rows import ROW, Policy, row_of
from training_gym.records.index.episode_values import EpisodePage, EpisodeQuery
from training_gym.records.index.places import read_line
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError

SEARCH_S = 0.4
"""How long a search for text reads before it gives what it has found."""
_ORDER = {
    "newest": "e.time",
    "oldest": "e.time",
    "reward": "e.reward",
    "length": "e.tokens",
    "duration": "e.duration_s",
    "staleness": "e.staleness",
}


@dataclass(frozen=True)
class NewestRecords:
    """Records of episodes, and where `records.readers` goes on behind them."""

    records: tuple[dict[str, Any], ...]
    omitted: int
    cursor: str
    damaged: int


def page(
    run: RunDirectory, connection: sqlite3.Connection, query: EpisodeQuery, policy: Policy
) -> EpisodePage:
    """The page that a query asks for."""
    condition = condition_of(connection, query, policy)
    start = _opened(query)
    total = start.get("total")
    if not (query.text or query.error) and (total is None or total <= FEW):
        condition, total = counted(connection, condition)
    found, last, complete = _search(run, connection, query, condition, start)
    more = len(found) > query.limit or not complete
    shown = found[: query.limit]
    if more and shown and len(found) > query.limit:
        last = _position(shown[-1], query)
    return EpisodePage(
        episodes=tuple(row_of(row, policy) for row in shown),
        cursor=_closed({**last, "total": total}) if more and last is not None else "",
        complete=complete,
        total=total,
    )


def newest_records(
    run: RunDirectory, connection: sqlite3.Connection, stream: str | None, limit: int
) -> NewestRecords:
    """The newest records as they were written, oldest first, without reading the others."""
    parts, values = ["hidden = 0"], []
    if stream is not None:
        parts.append("stream IN (SELECT id FROM words WHERE word IN (?, ?))")
        values += [stream, f"eval:{stream}"]
    where = " AND ".join(parts)
    found = connection.execute(
        f"SELECT segment, offset, length FROM episodes WHERE {where}"
        " ORDER BY attempt DESC, time DESC, id DESC LIMIT ?",
        (*values, limit),
    ).fetchall()
    total = connection.execute(f"SELECT count(*) FROM episodes WHERE {where}", values).fetchone()
    offsets = dict(
        connection.execute("SELECT name, offset FROM segments WHERE stream = 'episodes'")
    )
    damaged = connection.execute(
        "SELECT coalesce(sum(damaged), 0) FROM segments WHERE stream = 'episodes'"
    ).fetchone()
    return NewestRecords(
        records=tuple(read_line(run, connection, "episodes", place) for place in reversed(found)),
        omitted=total[0] - len(found),
        cursor=json.dumps(offsets, separators=(",", ":")),
        damaged=damaged[0],
    )


def _search(
    run: RunDirectory,
    connection: sqlite3.Connection,
    query: EpisodeQuery,
    condition: Condition,
    start: dict[str, Any],
) -> tuple[list[Sequence[Any]], dict[str, Any] | None, bool]:
    """Rows that match, one more than asked if there are; where it stood; whether to the end."""
    deadline = time.monotonic() + SEARCH_S
    found: list[Sequence[Any]] = []
    last: dict[str, Any] | None = None
    for row in _rows(connection, query, condition, start):
        last = _position(row, query)
        if _matches(run, connection, row, query):
            found.append(row)
            if len(found) > query.limit:
                break
        if (query.text or query.error) and time.monotonic() > deadline:
            return found, last, False
    return found, last, True


def _rows(
    connection: sqlite3.Connection,
    query: EpisodeQuery,
    condition: Condition,
    start: dict[str, Any],
) -> Iterator[Sequence[Any]]:
    """Rows after a position, in order: those with a value first, then those without."""
    name = _ORDER[query.order]
    descending = query.order == "newest" or (query.order != "oldest" and query.descending)
    way, beyond = ("DESC", "<") if descending else ("ASC", ">")
    if "id" not in start or start["at"] is not None:
        after, values = "", condition.values
        if "id" in start:
            after = f" AND ({name}, e.id) {beyond} (?, ?)"
            values = (*values, start["at"], start["id"])
        yield from connection.execute(
            f"{ROW} WHERE {condition.sql} AND {name} IS NOT NULL{after}"
            f" ORDER BY {name} {way}, e.id {way}",
            values,
        )
    if query.order not in ("reward", "staleness"):
        return  # the others always have a value
    after, values = "", condition.values
    if "id" in start and start["at"] is None:
        after, values = f" AND e.id {beyond} ?", (*values, start["id"])
    yield from connection.execute(
        f"{ROW} WHERE {condition.sql} AND {name} IS NULL{after} ORDER BY e.id {way}", values
    )


def _position(row: Sequence[Any], query: EpisodeQuery) -> dict[str, Any]:
    places = {"reward": 14, "length": 21, "duration": 26, "staleness": 24}
    return {"at": row[places.get(query.order, 11)], "id": row[0]}


def _matches(
    run: RunDirectory, connection: sqlite3.Connection, row: Sequence[Any], query: EpisodeQuery
) -> bool:
    if query.error:
        said = [str(row[13])]
        said += [
            str(json.loads(fields).get("message", ""))
            for (fields,) in connection.execute(
                "SELECT fields FROM remarks WHERE episode = ?", (row[1],)
            )
        ]
        if not any(query.error.lower() in text.lower() for text in said):
            return False
    if not query.text:
        return True
    record = read_line(run, connection, "episodes", (row[-3], row[-2], row[-1]))
    return any(query.text.lower() in text.lower() for text in texts_of(record["episode"]))


def texts_of(episode: dict[str, Any]) -> Iterator[str]:
    """Everything the conversation of a recorded episode says: texts, reasoning, tool calls."""
    messages = episode.get("messages") or ()
    prompt = episode["task"].get("prompt")
    if isinstance(prompt, str):
        yield prompt
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        else:
            yield from (str(part.get("text", "")) for part in content or ())
        yield str(message.get("reasoning") or "")
        yield from (
            json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls") or ()
        )


def _opened(query: EpisodeQuery) -> dict[str, Any]:
    if not query.cursor:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(query.cursor.encode()))
        return {"at": found["at"], "id": int(found["id"]), "total": found.get("total")}
    except (ValueError, LookupError, TypeError):
        raise RecordsError(
            f"{query.cursor!r:.60} is not a cursor of episodes",
            fix="pass the cursor of the page before, or none",
        ) from None


def _closed(position: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()
