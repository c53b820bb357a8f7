"""Taking in what is neither metric nor episode: records as they are, spans, log lines."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from training_gym.records.index.decode import compact, number_or_none
from training_gym.records.index.stream_values import LogLevel
from training_gym.records.lines import RESERVED

if TYPE_CHECKING:
    from training_gym.records.index.tailing import Part

LEVELS: tuple[str, ...] = get_args(LogLevel)
_LEVEL_WORDS = {
    "trace": 0,
    "debug": 0,
    "info": 1,
    "notice": 1,
    "warn": 2,
    "warning": 2,
    "error": 3,
    "critical": 3,
    "fatal": 3,
    "exception": 3,
}
_SAID = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
_FAILS = re.compile(r"^(Traceback \(most recent call last\)|[\w.]*(Error|Exception)\b)")
_WARNS = re.compile(r"^\S*\w*[Ww]arning: |: \w*Warning: ")
LANES = {
    "generation": "engine",
    "training": "trainer",
    "environment": "env",
    "reward": "reward",
    "sync": "sync",
    "evaluation": "driver",
    "data": "driver",
    "disk": "driver",
}
"""Lane of a span by its `component`, else by what its name begins with; `driver` if none fits."""


_REMARK = "INSERT INTO remarks (episode, kind, segment, fields) VALUES (?, ?, ?, ?)"
_SPAN = (
    "INSERT OR IGNORE INTO spans (writer, attempt, seq, lane, name, start, stop, batch,"
    " optimizer_step, key, fields) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class SpanRow(NamedTuple):
    """A span, or the beginning of one, as `_SPAN` stores it."""

    writer: str
    attempt: int
    seq: int
    lane: str
    name: str
    start: float
    stop: float | None
    """None: it has only begun; a record of the same `key` will close it."""
    batch: int | None
    optimizer_step: int | None
    key: str | None
    fields: str


class Remark(NamedTuple):
    """Display columns of an episode."""

    episode: str
    fields: str
    """JSON."""


def take_in(connection: sqlite3.Connection, stream: str, parts: Sequence[Part]) -> None:
    """Add records of a stream; one that is found again counts once."""
    if stream == "logs":
        _logs(connection, parts)
    elif stream == "heartbeat":
        _heartbeats(connection, [record for part in parts for record in part.records])
    elif stream == "spans":
        _spans(connection, [record for part in parts for record in part.records])
    elif stream == "tokens":
        connection.executemany(
            _REMARK,
            [
                (remark.episode, "columns", part.segment_id, remark.fields)
                for part in parts
                for remark in map(_remark, part.records)
            ],
        )
    else:
        for part in parts:
            for record in part.records:
                _record(connection, stream, record)


def _remark(record: Remark | dict[str, Any]) -> Remark:
    if isinstance(record, Remark):
        return record
    return Remark(str(record.get("episode", "")), own_fields(record))


def own_fields(record: dict[str, Any]) -> str:
    """JSON of what a record says beyond the envelope."""
    return compact({key: value for key, value in record.items() if key not in RESERVED})


def _record(connection: sqlite3.Connection, stream: str, record: dict[str, Any]) -> None:
    kind = record.get("kind") or record.get("rule") or record.get("name") or ""
    made = connection.execute(
        "INSERT OR IGNORE INTO records (stream, kind, writer, attempt, seq, time, batch,"
        " optimizer_step, policy_version, fields) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            stream,
            str(kind),
            str(record["writer"]),
            record["attempt"],
            record["seq"],
            record["time"],
            record.get("batch"),
            record.get("optimizer_step"),
            record.get("policy_version"),
            own_fields(record),
        ),
    )
    if stream != "events" or made.rowcount <= 0 or not isinstance(record.get("episode"), str):
        return
    connection.execute(_REMARK, (record["episode"], str(kind), 0, own_fields(record)))
    if kind == "episode_discarded":
        connection.execute("UPDATE episodes SET dropped = 1 WHERE key = ?", (record["episode"],))


def _heartbeats(connection: sqlite3.Connection, records: Sequence[dict[str, Any]]) -> None:
    """Keep each writer's newest."""
    newest: dict[str, dict[str, Any]] = {}
    for record in records:
        known = newest.setdefault(str(record["writer"]), record)
        if (record["attempt"], record["time"]) > (known["attempt"], known["time"]):
            newest[str(record["writer"])] = record
    connection.executemany(
        "INSERT INTO heartbeats VALUES (?, ?, ?, ?) ON CONFLICT (writer) DO UPDATE SET"
        " attempt = excluded.attempt, time = excluded.time, fields = excluded.fields"
        " WHERE (excluded.attempt, excluded.time) >= (heartbeats.attempt, heartbeats.time)",
        [
            (writer, record["attempt"], record["time"], own_fields(record))
            for writer, record in newest.items()
        ],
    )


def _spans(connection: sqlite3.Connection, records: Sequence[SpanRow | dict[str, Any]]) -> None:
    """Spans, and beginnings of some: `end` null, to be closed by a record of the same `span`."""
    rows: list[SpanRow] = []
    for record in records:
        row = record if isinstance(record, SpanRow) else span_row(record)
        if row is None:
            continue
        if row.key is not None and row.stop is not None:
            connection.executemany(_SPAN, rows)  # its beginning may be among them
            rows.clear()
            connection.execute(
                "DELETE FROM spans WHERE stop IS NULL AND writer = ? AND attempt = ? AND key = ?",
                (row.writer, row.attempt, row.key),
            )
        rows.append(row)
    connection.executemany(_SPAN, rows)


def span_row(record: dict[str, Any]) -> SpanRow | None:
    """The row of a whole record; None: it does not say when it began."""
    begun, ended = number_or_none(record.get("start")), number_or_none(record.get("end"))
    if begun is None:
        return None
    shift = record["time"] - record["monotonic"]  # the writer's clock in terms of the day's
    name, key = str(record.get("name", "")), record.get("span")
    return SpanRow(
        str(record["writer"]),
        record["attempt"],
        record["seq"],
        str(record.get("lane") or lane_of(str(record.get("component") or name))),
        name,
        begun + shift,
        None if ended is None else ended + shift,
        record.get("batch"),
        record.get("optimizer_step"),
        None if key is None else str(key),
        own_fields(record),
    )


@lru_cache(maxsize=1024)
def lane_of(name: str) -> str:
    """The lane of a component, or of a span that is called so."""
    return next((lane for start, lane in LANES.items() if name.startswith(start)), "driver")


def _logs(connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    words: dict[str, int] = dict(connection.execute("SELECT word, id FROM words"))

    def number(word: str) -> int:
        if word not in words:
            made = connection.execute("INSERT INTO words (word) VALUES (?)", (word,))
            words[word] = int(made.lastrowid or 0)
        return words[word]

    connection.executemany(
        "INSERT INTO logs (segment, offset, length, time, batch, writer, source, level)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                part.segment_id,
                *place,
                record["time"],
                record.get("batch"),
                number(str(record["writer"])),
                number(str(record.get("source", "log"))),
                level_of(record),
            )
            for part in parts
            for record, place in zip(part.records, part.places, strict=True)
        ],
    )


def level_of(record: dict[str, Any]) -> int:
    """Place in `LEVELS` of what the record says, else of what the line looks like."""
    said = _LEVEL_WORDS.get(str(record.get("level", "")).lower())
    if said is not None:
        return said
    beginning = str(record.get("text", ""))[:200]
    word = _SAID.search(beginning[:80])
    if word:
        return _LEVEL_WORDS[word.group(1).lower()]
    if _FAILS.match(beginning):
        return 3
    return 2 if _WARNS.search(beginning) else 1
