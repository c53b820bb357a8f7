"""Lines of spans and of display columns decoded by their type; what else they say is kept as it is.

A recorder writes the envelope first: everything behind it is the record's own fields, whose JSON
need not be taken apart to be stored. Imported only where msgspec is installed.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from training_gym.records.index.record_intake import Remark, SpanRow, lane_of

_ENVELOPE = re.compile(
    rb'\{"schema":1,"writer":"[^"\\]*","attempt":\d+,"seq":\d+,"time":-?[\d.]+,'
    rb'"monotonic":-?[\d.]+,"batch":(?:null|-?\d+),"optimizer_step":(?:null|-?\d+),'
    rb'"policy_version":(?:null|-?\d+),'
)


class _Span(msgspec.Struct, gc=False):
    schema: Literal[1]
    writer: str
    attempt: int
    seq: int
    time: float
    monotonic: float
    batch: int | None
    optimizer_step: int | None
    start: float
    end: float | None = None
    name: str = ""
    component: str = ""
    lane: str = ""
    span: str | int | None = None


class _Columns(msgspec.Struct, gc=False):
    schema: Literal[1]
    episode: str = ""


_SPAN = msgspec.json.Decoder(_Span)
_COLUMNS = msgspec.json.Decoder(_Columns)


def quick_span(line: bytes) -> SpanRow | None:
    """The row of a span that our recorder wrote; None where it is not quite that."""
    try:
        span, fields = _SPAN.decode(line), _own_fields(line)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    if fields is None:
        return None
    shift = span.time - span.monotonic
    return SpanRow(
        span.writer,
        span.attempt,
        span.seq,
        span.lane or lane_of(span.component or span.name),
        span.name,
        span.start + shift,
        None if span.end is None else span.end + shift,
        span.batch,
        span.optimizer_step,
        None if span.span is None else str(span.span),
        fields,
    )


def quick_remark(line: bytes) -> Remark | None:
    """The same of an episode's display columns."""
    try:
        columns, fields = _COLUMNS.decode(line), _own_fields(line)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return None if fields is None else Remark(columns.episode, fields)


def _own_fields(line: bytes) -> str | None:
    """JSON behind the envelope; None where the standard reader would change something in it."""
    envelope = _ENVELOPE.match(line)
    if envelope is None or b"\\ud" in line or b"\\uD" in line:  # may be half a pair
        return None
    return "{" + line[envelope.end() :].decode()
