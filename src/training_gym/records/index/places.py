"""From a place in a segment back to the record that lies there."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from training_gym.records.documents import storage_error
from training_gym.records.index.decode import record_of
from training_gym.records.index.store import Stale
from training_gym.records.run_directory import RunDirectory

Place = tuple[int, int, int]
"""Segment's number in the index, offset, length."""


def read_bytes(
    run: RunDirectory, connection: sqlite3.Connection, stream: str, place: Place
) -> bytes:
    """The line at a place; raises `Stale` where the segment is gone."""
    segment, offset, length = place
    return read_part(run.streams / stream / segment_name(connection, segment), offset, length)


def read_part(path: Path, offset: int, length: int) -> bytes:
    """That part of a segment; raises `Stale` where the segment is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise Stale(f"{path} is gone") from None
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


def read_line(
    run: RunDirectory, connection: sqlite3.Connection, stream: str, place: Place
) -> dict[str, Any]:
    """The record at a place; raises `Stale` where another one lies there now."""
    record = record_of(read_bytes(run, connection, stream, place))
    if record is None:
        raise Stale(f"no record at byte {place[1]} of segment {place[0]} of {stream}")
    return record


def segment_name(connection: sqlite3.Connection, segment: int) -> str:
    """File name of a segment; raises `Stale` for an unknown one."""
    row = connection.execute("SELECT name FROM segments WHERE id = ?", (segment,)).fetchone()
    if row is None:
        raise Stale(f"segment {segment} is unknown")
    return str(row[0])
