"""Taking in what is no metric, episode or span: records as they are, log lines, heartbeats."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from training_gym.records.index.decode import compact, record_of
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
_REMARK = "INSERT INTO remarks (episode, kind, fields) VALUES (?, ?, ?)"


class Beat(NamedTuple):
    """A heartbeat in short."""

    writer: str
    attempt: int
    time: float


class LogHead(NamedTuple):
    """A line of a log in short."""

    time: float
    batch: int | None
    writer: str
    source: str
    level: int
    """Place in `LEVELS`."""


def take_in(connection: sqlite3.Connection, stream: str, parts: Sequence[Part]) -> None:
    """Add records of a stream; one that is found again counts once."""
    if stream == "logs":
        _logs(connection, parts)
    elif stream == "heartbeat":
        _heartbeats(connection, parts)
    elif stream == "tokens":
        _display_columns(connection, parts)
    else:
        for part in parts:
            for record in part.records:
                _record(connection, stream, record)


def _display_columns(connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    """By the episode's id: a string where it was read in short."""
    connection.executemany(
        "INSERT OR IGNORE INTO display_columns VALUES (?, ?, ?, ?)",
        [
            (
                said if isinstance(said, str) else str(said.get("episode", "")),
                part.segment_id,
                *place,
            )
            for part in parts
            for said, place in zip(part.records, part.places, strict=True)
        ],
    )


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
    connection.execute(_REMARK, (record["episode"], str(kind), own_fields(record)))
    if kind == "episode_discarded":
        connection.execute("UPDATE episodes SET dropped = 1 WHERE key = ?", (record["episode"],))


def _heartbeats(connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    """Keep each writer's newest."""
    newest: dict[str, tuple[tuple[int, float], bytes]] = {}
    for part in parts:
        for number, record in enumerate(part.records):
            beat = record if isinstance(record, Beat) else _beat(record)
            known = newest.get(beat.writer)
            if known is None or beat[1:] > known[0]:
                newest[beat.writer] = (beat[1:], part.line(number))
    connection.executemany(
        "INSERT INTO heartbeats VALUES (?, ?, ?, ?) ON CONFLICT (writer) DO UPDATE SET"
        " attempt = excluded.attempt, time = excluded.time, fields = excluded.fields"
        " WHERE (excluded.attempt, excluded.time) >= (heartbeats.attempt, heartbeats.time)",
        [
            (writer, *moment, own_fields(record_of(line) or {}))
            for writer, (moment, line) in newest.items()
        ],
    )


def _beat(record: dict[str, Any]) -> Beat:
    return Beat(str(record["writer"]), record["attempt"], record["time"])


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
                head.time,
                head.batch,
                number(head.writer),
                number(head.source),
                head.level,
            )
            for part in parts
            for head, place in zip(map(_log_head, part.records), part.places, strict=True)
        ],
    )


def _log_head(record: LogHead | dict[str, Any]) -> LogHead:
    return record if isinstance(record, LogHead) else log_head(record)


def log_head(record: dict[str, Any]) -> LogHead:
    """The head of a whole record."""
    return LogHead(
        record["time"],
        record.get("batch"),
        str(record["writer"]),
        str(record.get("source", "log")),
        level_of(str(record.get("level", "")), str(record.get("text", ""))),
    )


def level_of(level: str, text: str) -> int:
    """Place in `LEVELS` of what the record says, else of what the line looks like."""
    said = _LEVEL_WORDS.get(level.lower()) if level else None
    if said is not None:
        return said
    beginning = text[:200]
    word = _SAID.search(beginning[:80])
    if word:
        return _LEVEL_WORDS[word.group(1).lower()]
    if _FAILS.match(beginning):
        return 3
    return 2 if "arning: " in beginning and _WARNS.search(beginning) else 1
