"""Pages of log lines: places and levels from the index, texts from the files."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from training_gym.records.index.places import read_line
from training_gym.records.index.record_intake import LEVELS
from training_gym.records.index.searching import searching
from training_gym.records.index.stream_values import LogLine, LogPage, LogQuery
from training_gym.records.index.timeline import batches
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError

LONGEST = 65_536
"""Characters of a line that are shown."""
TRIED = 64
"""Lines that a regex is tried on at once."""
SEARCH_S = 0.4
"""How long a regex reads before the page ends with what was found."""

_ROW = (
    "SELECT l.id, l.time, w.word, s.word, l.level, l.batch, l.segment, l.offset, l.length"
    " FROM logs l JOIN words w ON w.id = l.writer JOIN words s ON s.id = l.source"
)


def page(run: RunDirectory, connection: sqlite3.Connection, query: LogQuery) -> LogPage:
    """The newest lines, or those before or after a cursor; oldest first."""
    backwards, at = _opened(query.cursor)
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM logs").fetchone()[0]
    deadline = time.monotonic() + SEARCH_S
    found: list[LogLine] = []
    last, complete, more = at, True, False
    with (
        closing(_rows(connection, query, backwards, at)) as rows,
        searching(query.regex) as search,
    ):
        while some := list(islice(rows, TRIED if query.regex else query.limit + 1)):
            lines = [_line(run, connection, row) for row in some]
            for line, matches in zip(lines, search([line.text for line in lines]), strict=True):
                if len(found) == query.limit:
                    more = True
                    break
                last = (line.time, line.id)
                if matches:
                    found.append(line)
            if more:
                break
            if query.regex and time.monotonic() > deadline:
                complete = False
                break
    found.sort(key=lambda line: (line.time, line.id))
    first = (found[0].time, found[0].id) if found else at
    older = _closed("b", first) if first is not None else ""
    if backwards:
        older = _closed("b", last) if more or not complete else ""
        newer = _closed("f", (0.0, newest if at is None or not found else found[-1].id))
    else:
        newer = _closed("f", (0.0, newest) if complete and not more else last)
    return LogPage(
        lines=tuple(found),
        older=older,
        newer=newer,
        complete=complete,
        sources=_sources(connection),
    )


def _rows(
    connection: sqlite3.Connection,
    query: LogQuery,
    backwards: bool,
    at: tuple[float, int] | None,
) -> Generator[Sequence[Any], None, None]:
    parts: list[str] = ["1"]
    values: list[Any] = []
    for name, words in (("s.word", query.source), ("w.word", query.writer)):
        if words:
            parts.append(f"{name} IN ({', '.join('?' * len(words))})")
            values += list(words)
    if query.level is not None:
        parts.append("l.level >= ?")
        values.append(LEVELS.index(query.level))
    since = query.since
    if query.step is not None:
        since = max(since or 0.0, _begin(connection, query.step))
    if since is not None:
        parts.append("l.time >= ?")
        values.append(since)
    order = "l.time DESC, l.id DESC"
    if not backwards:  # in the order of arrival: a slow writer's lines may come late
        order = "l.id"
        parts.append("l.id > ?")
        values.append(at[1] if at is not None else 0)
    elif at is not None:
        parts.append("(l.time, l.id) < (?, ?)")
        values += list(at)
    yield from connection.execute(f"{_ROW} WHERE {' AND '.join(parts)} ORDER BY {order}", values)


def _begin(connection: sqlite3.Connection, step: int) -> float:
    """When a batch began: where its spans or episodes did, else the end of the one before."""
    known = {number: (start, end) for number, start, end in batches(connection)}
    if step in known:
        return known[step][0]
    earlier = [end for number, (_, end) in known.items() if number < step]
    return max(earlier, default=0.0)


def _line(run: RunDirectory, connection: sqlite3.Connection, row: Sequence[Any]) -> LogLine:
    record = read_line(run, connection, "logs", (row[6], row[7], row[8]))
    text = str(record.get("text", ""))
    return LogLine(
        id=row[0],
        time=row[1],
        writer=row[2],
        source=row[3],
        level=LEVELS[row[4]],
        batch=row[5],
        text=text[:LONGEST],
        cut=max(0, len(text) - LONGEST),
    )


def _sources(connection: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(
        word
        for (word,) in connection.execute(
            "SELECT word FROM words WHERE id IN (SELECT DISTINCT source FROM logs) ORDER BY word"
        )
    )


def _opened(cursor: str) -> tuple[bool, tuple[float, int] | None]:
    if not cursor:
        return True, None
    try:
        way, moment, identity = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        return way == "b", None if moment is None else (float(moment), int(identity))
    except (ValueError, TypeError):
        raise RecordsError(
            f"{cursor!r:.60} is not a cursor of logs",
            fix="pass the cursor of another page, or none",
        ) from None


def _closed(way: str, position: tuple[float, int] | None) -> str:
    moment, identity = position if position is not None else (None, None)
    return base64.urlsafe_b64encode(json.dumps([way, moment, identity]).encode()).decode()
