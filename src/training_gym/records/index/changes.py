"""What is new in a run since a cursor: a mark for each kind of record, and the index's epoch."""

from __future__ import annotations

import base64
import json
import math
import sqlite3
from array import array
from bisect import bisect_right
from collections.abc import Sized
from typing import Any

from training_gym.records.index.column_reading import column, lanes, shows
from training_gym.records.index.cutting import known_cuts
from training_gym.records.index.episode_rows import ROW, Policy, row_of
from training_gym.records.index.run_values import RecordPage, RecordRow, RunRow
from training_gym.records.index.span_blocks import newest_number, spans_after
from training_gym.records.index.stream_values import Changes, MetricRecord
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError

Marks = dict[str, int]
_RECORDS = ("events", "alerts", "evaluations", "annotations")


def changes(
    run: RunDirectory,
    connection: sqlite3.Connection,
    row: RunRow,
    policy: Policy,
    cursor: str | float,
    limit: int,
) -> Changes:
    """Everything after the cursor, or after a moment in seconds since 1970.

    At most `limit` records of each kind.
    """
    epoch = _epoch(connection)
    if cursor == "":
        return Changes(run=row, reset=False, cursor=closed(epoch, _now(connection)))
    known_epoch, marks = (
        opened(cursor) if isinstance(cursor, str) else (epoch, _at(connection, cursor))
    )
    if known_epoch != epoch:
        return Changes(run=row, reset=True, cursor=closed(epoch, _now(connection)))
    after = dict(marks)
    streams = {name: records(connection, name, after, limit) for name in _RECORDS}
    metrics = _metrics(connection, after, limit)
    episodes = [
        row_of(found, policy)
        for found in _advance(
            connection, f"{ROW} WHERE e.id > ? AND e.hidden = 0 ORDER BY e.id", "e", after, limit
        )
    ]
    spans, after["s"] = spans_after(
        run, connection, after.get("s", 0), limit, known_cuts(connection)
    )
    logs = _now(connection)["l"]
    num_logs, after["l"] = logs - after.get("l", 0), logs
    kinds: list[Sized] = [metrics, episodes, spans, *streams.values()]
    return Changes(
        run=row,
        reset=False,
        metrics=tuple(metrics),
        episodes=tuple(episodes),
        spans=tuple(spans),
        num_logs=num_logs,
        more=any(len(kind) >= limit for kind in kinds),
        cursor=closed(epoch, after),
        **{name: tuple(found) for name, found in streams.items()},
    )


def records(
    connection: sqlite3.Connection,
    stream: str,
    marks: Marks,
    limit: int,
    kinds: tuple[str, ...] = (),
) -> list[RecordRow]:
    """Records of a stream after the mark, which moves on."""
    chosen = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    found = connection.execute(
        "SELECT id, writer, attempt, seq, time, batch, optimizer_step, policy_version, fields"
        f" FROM records WHERE stream = ? AND id > ? AND hidden = 0{chosen} ORDER BY id LIMIT ?",
        (stream, marks.get(stream, 0), *kinds, limit),
    ).fetchall()
    if found:
        marks[stream] = found[-1][0]
    return [record_row(row) for row in found]


def record_page(
    connection: sqlite3.Connection, stream: str, cursor: str, limit: int, kinds: tuple[str, ...]
) -> RecordPage:
    """Records of a stream after a cursor; after a rebuild of the index, from the beginning."""
    epoch = _epoch(connection)
    known_epoch, marks = opened(cursor) if cursor else (epoch, {})
    marks = marks if known_epoch == epoch else {}
    found = records(connection, stream, marks, limit + 1, kinds)
    shown = found[:limit]
    if shown:
        marks[stream] = shown[-1].id
    return RecordPage(
        records=tuple(shown), cursor=closed(epoch, marks), more=len(found) > len(shown)
    )


def record_row(row: Any) -> RecordRow:
    """A row of `records` as a value."""
    identity, writer, attempt, seq, moment, batch, optimizer_step, policy_version, fields = row
    return RecordRow(
        id=identity,
        writer=writer,
        attempt=attempt,
        seq=seq,
        time=moment,
        batch=batch,
        optimizer_step=optimizer_step,
        policy_version=policy_version,
        fields=json.loads(fields),
    )


def opened(cursor: str) -> tuple[str, Marks]:
    """Epoch and marks of a cursor; raises `RecordsError`."""
    try:
        epoch, marks = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        return str(epoch), {str(name): int(mark) for name, mark in marks.items()}
    except (ValueError, TypeError, AttributeError):
        raise RecordsError(
            f"{cursor!r:.60} is not a cursor", fix="pass the cursor of the answer before, or none"
        ) from None


def closed(epoch: str, marks: Marks) -> str:
    """A cursor of epoch and marks."""
    text = json.dumps([epoch, marks], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def _epoch(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    return str(row[0])


def _now(connection: sqlite3.Connection) -> Marks:
    """Marks behind everything there is."""
    marks = {f"m{lane.id}": lane.num_rows for lane in lanes(connection)}
    marks["s"] = newest_number(connection)
    for name, table in (("e", "episodes"), ("l", "logs")):
        marks[name] = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
    for stream, newest in connection.execute("SELECT stream, max(id) FROM records GROUP BY stream"):
        marks[stream] = newest
    return marks


def _at(connection: sqlite3.Connection, moment: float) -> Marks:
    """Marks behind what was recorded up to a moment; spans by the blocks that had ended then."""
    marks = {
        f"m{lane.id}": bisect_right(column(connection, lane.id, "~time").data, moment)
        for lane in lanes(connection)
    }
    for mark, question in (
        ("s", "SELECT max(id + count - 1) FROM span_blocks WHERE last <= ?"),
        ("e", "SELECT max(id) FROM episodes WHERE time <= ?"),
        ("l", "SELECT max(id) FROM logs WHERE time <= ?"),
    ):
        marks[mark] = connection.execute(question, (moment,)).fetchone()[0] or 0
    for stream, newest in connection.execute(
        "SELECT stream, max(id) FROM records WHERE time <= ? GROUP BY stream", (moment,)
    ):
        marks[stream] = newest
    return marks


def _advance(
    connection: sqlite3.Connection, question: str, mark: str, marks: Marks, limit: int
) -> list[Any]:
    found = connection.execute(f"{question} LIMIT ?", (marks.get(mark, 0), limit)).fetchall()
    if found:
        marks[mark] = found[-1][0]
    return found


def _metrics(connection: sqlite3.Connection, marks: Marks, limit: int) -> list[MetricRecord]:
    """Rows after each lane's mark: from `recent` as long as they wait there, else from chunks."""
    names: dict[int, str] = dict(connection.execute("SELECT id, name FROM names"))
    found: list[MetricRecord] = []
    for lane in lanes(connection):
        first = marks.get(f"m{lane.id}", 0)
        last = min(lane.num_rows, first + limit)
        if first >= last:
            continue
        marks[f"m{lane.id}"] = last
        rows: dict[int, dict[str, float]] = {row: {} for row in range(first, last)}
        waiting = connection.execute(
            "SELECT row, names, data FROM recent WHERE lane = ? AND row >= ? AND row < ?",
            (lane.id, first, last),
        ).fetchall()
        for row, numbers, data in waiting:
            rows[row] = {
                names[number]: value
                for number, value in zip(array("i", numbers), array("d", data), strict=True)
            }
        if len(waiting) < last - first:
            _from_chunks(connection, lane.id, names, rows)
        found += [_metric_record(v) for row, v in rows.items() if v and shows(lane, row)]
    return sorted(found, key=lambda record: record.time)


def _from_chunks(
    connection: sqlite3.Connection,
    lane: int,
    names: dict[int, str],
    rows: dict[int, dict[str, float]],
) -> None:
    for name in names.values():
        values = column(connection, lane, name)
        for row, value in zip(values.rows, values.data, strict=True):
            if row in rows:
                rows[row][name] = value


def _metric_record(values: dict[str, float]) -> MetricRecord:
    return MetricRecord(
        batch=_whole(values["~batch"]),
        optimizer_step=_whole(values["~optimizer_step"]),
        time=values["~time"],
        tokens=values["~tokens"],
        values={name: value for name, value in values.items() if not name.startswith("~")},
    )


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
