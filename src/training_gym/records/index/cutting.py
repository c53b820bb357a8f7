"""Hiding in the index what a resume made void, by the very rules of `records.resume`."""

from __future__ import annotations

import json
import sqlite3
import uuid
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from training_gym.records.index.column_reading import column
from training_gym.records.resume import HIDEABLE, Cut, cuts

_PAST = """(attempt < :attempt AND (:fresh
    OR (writer = :writer AND (attempt > :at OR (attempt = :at AND seq > :seq)))
    OR (writer <> :writer AND (coalesce(optimizer_step > :step, 0) OR coalesce(batch > :batch, 0)))
))"""


def hide(connection: sqlite3.Connection, streams: Mapping[str, Sequence[Any]]) -> None:
    """After new records: hide those of them, and with a new cut all others, that are void."""
    made = known_cuts(connection)
    if not made:
        return
    newest = max(cut.attempt for cut in made)
    known = connection.execute("SELECT value FROM meta WHERE key = 'cuts'").fetchone()
    changed = 0
    if (known[0] if known else 0) != len(made):
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('cuts', ?)", (len(made),))
        changed = _spans_before(connection, newest)  # which are hidden when they are read
    elif not _arrived_late(streams, newest):
        return
    changed += sum(_hide_rows(connection, cut) for cut in made)
    changed += _hide_metrics(connection, made)
    if changed:
        connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'epoch'", (uuid.uuid4().hex[:12],)
        )


def known_cuts(connection: sqlite3.Connection) -> list[Cut]:
    """All cuts that the run's events speak of."""
    return cuts(
        {**json.loads(fields), "kind": "attempt_started", "attempt": attempt}
        for attempt, fields in connection.execute(
            "SELECT attempt, fields FROM records WHERE stream = 'events'"
            " AND kind = 'attempt_started' ORDER BY id"
        )
    )


def _arrived_late(streams: Mapping[str, Sequence[Any]], newest: int) -> bool:
    """Whether what was just read holds records of an attempt that has been cut."""
    return any(
        part.segment.attempt < newest
        for stream, parts in streams.items()
        if stream in HIDEABLE
        for part in parts
    )


def _hide_rows(connection: sqlite3.Connection, cut: Cut) -> int:
    values = {
        "attempt": cut.attempt,
        "fresh": cut.fresh,
        "writer": cut.writer,
        "at": cut.writer_attempt,
        "seq": cut.seq,
        "step": cut.optimizer_step,
        "batch": cut.batch,
    }
    done = connection.execute(
        f"UPDATE records SET hidden = 1 WHERE hidden = 0 AND stream = 'evaluations' AND {_PAST}",
        values,
    )
    writer = connection.execute("SELECT id FROM words WHERE word = ?", (cut.writer,)).fetchone()
    values["writer"] = writer[0] if writer else -1
    touched = [
        group
        for (group,) in connection.execute(
            f"UPDATE episodes SET hidden = 1 WHERE hidden = 0 AND {_PAST} RETURNING in_group",
            values,
        ).fetchall()
    ]
    if touched:
        from training_gym.records.index.episode_intake import sum_up_groups

        sum_up_groups(connection, set(touched))
    return done.rowcount + len(touched)


def _spans_before(connection: sqlite3.Connection, attempt: int) -> int:
    """How many writers recorded spans in earlier attempts."""
    row = connection.execute("SELECT count(*) FROM span_writers WHERE attempt < ?", (attempt,))
    return int(row.fetchone()[0])


def _hide_metrics(connection: sqlite3.Connection, made: list[Cut]) -> int:
    """Mark, in each lane of an earlier attempt, the rows that still show."""
    newest = max(cut.attempt for cut in made)
    changed = 0
    lanes = connection.execute(
        "SELECT id, writer, attempt, kept FROM lanes WHERE attempt < ?", (newest,)
    ).fetchall()
    for lane, writer, attempt, before in lanes:
        seq, batch, step = (
            column(connection, lane, name).data for name in ("~seq", "~batch", "~optimizer_step")
        )
        kept = _kept(made, writer, attempt, (seq, batch, step))
        mask = None if all(kept) else bytes(kept)
        if mask != before:
            connection.execute("UPDATE lanes SET kept = ? WHERE id = ?", (mask, lane))
            changed += 1
    return changed


def _kept(
    made: list[Cut], writer: str, attempt: int, columns: tuple[array[float], ...]
) -> list[bool]:
    return [
        not any(
            cut.hides(
                {
                    "writer": writer,
                    "attempt": attempt,
                    "seq": seq,
                    "batch": batch if batch == batch else None,
                    "optimizer_step": step if step == step else None,
                }
            )
            for cut in made
        )
        for seq, batch, step in zip(*columns, strict=True)
    ]
