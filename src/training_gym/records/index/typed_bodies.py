"""Lines of all streams but episodes and metrics decoded by their types, a whole block at once.

Only what the index keeps is named; the rest of a line is passed over. Imported only where msgspec
is installed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from training_gym.records.index.record_intake import Beat, LogHead, level_of
from training_gym.records.index.span_blocks import SpanHead, lane_of


class _Line(msgspec.Struct, gc=False):
    schema: Literal[1]
    writer: str
    attempt: int
    seq: int
    time: float


class _Span(_Line, gc=False):
    monotonic: float
    start: float
    end: float | None = None
    name: str = ""
    component: str = ""
    lane: str = ""
    span: str | int | None = None


class _Log(_Line, gc=False):
    batch: int | None = None
    source: str = "log"
    level: str = ""
    text: str = ""


class _Columns(_Line, gc=False):
    episode: str = ""


_SPANS = msgspec.json.Decoder(_Span)
_LOGS = msgspec.json.Decoder(_Log)
_COLUMNS = msgspec.json.Decoder(_Columns)
_BEATS = msgspec.json.Decoder(_Line)


def quick_spans(data: bytes) -> list[SpanHead]:
    """Heads of lines of spans."""
    return [
        SpanHead(
            line.writer,
            line.attempt,
            line.seq,
            line.lane or lane_of(line.component or line.name),
            line.name,
            line.start + (shift := line.time - line.monotonic),
            None if line.end is None else line.end + shift,
            None if line.span is None else str(line.span),
        )
        for line in _SPANS.decode_lines(data)
    ]


def quick_logs(data: bytes) -> list[LogHead]:
    """Heads of lines of logs."""
    return [
        LogHead(line.time, line.batch, line.writer, line.source, level_of(line.level, line.text))
        for line in _LOGS.decode_lines(data)
    ]


def quick_columns(data: bytes) -> list[str]:
    """Ids of the episodes whose display columns the lines describe."""
    return [line.episode for line in _COLUMNS.decode_lines(data)]


def quick_beats(data: bytes) -> list[Beat]:
    """Heartbeats in short."""
    return [Beat(line.writer, line.attempt, line.time) for line in _BEATS.decode_lines(data)]
