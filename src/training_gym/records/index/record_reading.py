"""What a run's records say of it: notes, tags, evaluations, records as the readers give them."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from training_gym.records.index.run_values import Figure, Note


def tags_of(manifest: Mapping[str, Any], annotations: Iterable[Mapping[str, Any]]) -> list[str]:
    """The manifest's tags, with what was added and removed since."""
    tags = dict.fromkeys(str(tag) for tag in manifest.get("tags", ()))
    for note in annotations:
        if note.get("kind") == "tag_added":
            tags[str(note.get("tag"))] = None
        elif note.get("kind") == "tag_removed":
            tags.pop(str(note.get("tag")), None)
    return list(tags)


def notes_of(connection: sqlite3.Connection) -> list[Note]:
    """What was written on the run, oldest first, without what was taken back."""
    notes: dict[str, Note] = {}
    for moment, fields in annotations_of(connection):
        if fields.get("kind") == "note":
            note = Note(
                id=str(fields.get("id", "")),
                time=moment,
                by=str(fields.get("by", "")),
                text=str(fields.get("text", "")),
            )
            notes[note.id] = note
        elif fields.get("kind") == "note_removed":
            notes.pop(str(fields.get("id", "")), None)
    return list(notes.values())


def figure_of(fields: Mapping[str, Any], batch: int | None) -> Figure:
    """An evaluation's record as a figure."""
    return Figure(
        name=str(fields.get("name", "")),
        mean=fields.get("mean", math.nan),
        low=fields.get("low", math.nan),
        high=fields.get("high", math.nan),
        count=fields.get("tasks", 0),
        step=batch or 0,
    )


def records_of(connection: sqlite3.Connection, stream: str) -> list[dict[str, Any]]:
    """Records of a stream as the readers give them, oldest first, hidden ones left out."""
    names = ("writer", "attempt", "seq", "time", "batch", "optimizer_step", "policy_version")
    return [
        {**dict(zip(names, row[:7], strict=True)), **json.loads(row[7])}
        for row in connection.execute(
            f"SELECT {', '.join(names)}, fields FROM records WHERE stream = ? AND hidden = 0"
            " ORDER BY attempt, time, id",
            (stream,),
        )
    ]


def annotations_of(connection: sqlite3.Connection) -> list[tuple[float, dict[str, Any]]]:
    """Notes, tags and acknowledgements as written, and when; oldest first."""
    return [
        (moment, json.loads(fields))
        for moment, fields in connection.execute(
            "SELECT time, fields FROM records WHERE stream = 'annotations' ORDER BY time, id"
        )
    ]
