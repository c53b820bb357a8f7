"""Lines of metrics decoded by their type: records of the same metrics share one.

A type that names every metric lets the decoder go from key to key without making a string or a
dictionary of any of them. Imported only where msgspec is installed.
"""

from __future__ import annotations

import contextlib
import math
from array import array
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from training_gym.records.index.decode import record_of
from training_gym.records.index.metric_lines import MetricLine, metric_line

_SHAPES = 4
"""Sets of metrics that are told apart by trying; a line of a further set is read as a whole."""
_MOST_NAMES = 4096


_Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""What a double holds exactly."""


class _Line(msgspec.Struct):
    schema: Literal[1]
    writer: str
    attempt: _Count
    seq: _Count
    time: float
    batch: _Count | None
    optimizer_step: _Count | None
    policy_version: _Count | None


class MetricReader:
    """A function from a line to what it says, which learns from each line what the next is like."""

    def __init__(self) -> None:
        """Knows no metric yet."""
        self._shapes: list[tuple[str, ...]] = []
        """The one that fitted last is first."""

    def read(self, data: bytes) -> list[MetricLine | None]:
        """What each of many lines says; None: the standard reader must look at it.

        Mostly all of them have the metrics of the one before, and can be decoded at once.
        """
        if self._shapes:
            names = self._shapes[0]
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                return [_metric_line(line, names) for line in _decoder(names).decode_lines(data)]
        return [self(line) for line in data.split(b"\n")[:-1]]

    def __call__(self, line: bytes) -> MetricLine | None:
        """The line's metrics; None: the standard reader must look at it."""
        for place, names in enumerate(self._shapes):
            try:
                read = _decoder(names).decode(line)
            except (msgspec.MsgspecError, UnicodeError):
                continue
            if place:
                self._prefer(names)
            return _metric_line(read, names)
        return self._learn(line)

    def _learn(self, line: bytes) -> MetricLine | None:
        record = record_of(line)
        found = metric_line(record) if record is not None else None
        if found is not None and len(found.names) <= _MOST_NAMES:
            self._prefer(found.names)
        return found

    def _prefer(self, names: tuple[str, ...]) -> None:
        others = [other for other in self._shapes if other != names]
        self._shapes = [names, *others][:_SHAPES]


@lru_cache(maxsize=64)
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Of lines with exactly these metrics, all of them finite numbers."""
    fields = [f"m{place}" for place in range(len(names))]
    values = msgspec.defstruct(
        "Values",
        [(field, float) for field in fields],
        rename=dict(zip(fields, names, strict=True)),
        forbid_unknown_fields=True,
        gc=False,
    )
    return msgspec.json.Decoder(
        msgspec.defstruct("Line", [("values", values)], bases=(_Line,), gc=False)
    )


def _metric_line(read: Any, names: tuple[str, ...]) -> MetricLine:
    batch, step, version = read.batch, read.optimizer_step, read.policy_version
    return MetricLine(
        read.writer,
        read.attempt,
        read.seq,
        (
            read.seq,
            read.time,
            math.nan if batch is None else batch,
            math.nan if step is None else step,
            math.nan if version is None else version,
        ),
        names,
        array("d", msgspec.structs.astuple(read.values)),
    )
