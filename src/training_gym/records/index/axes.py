"""What curves are drawn over: steps, batches, time, tokens or cost, through all attempts."""

from __future__ import annotations

import math
import sqlite3
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress

from training_gym.records.index.column_reading import Lane, column, lanes
from training_gym.records.index.series_values import Axis

COLUMN_OF: dict[Axis, str] = {
    "step": "~optimizer_step",
    "batch": "~batch",
    "time": "~time",
    "tokens": "~tokens",
    "cost": "cost",
}


class Axes:
    """The x of every row of every lane, read once for many curves."""

    def __init__(self, connection: sqlite3.Connection, axis: Axis) -> None:
        self._connection = connection
        self.axis = axis
        self.lanes = lanes(connection)
        self._rows: dict[int, array[float]] = {}
        self._batches: dict[int, array[float]] = {}
        self._shifts: dict[int, float] = {}
        self._tokens_lane = {
            lane.attempt: lane for lane in reversed(self.lanes) if self._counts_tokens(lane)
        }

    def x(self, lane: Lane) -> array[float]:
        """Axis values by row; NaN where a row has none."""
        if lane.id not in self._rows:
            own = self._source(lane)
            values = column(self._connection, own.id, COLUMN_OF[self.axis])
            data = values.data
            if self.axis == "cost":
                data = _spread(values.rows, data, lane.num_rows)
            elif own is not lane:
                data = self._through_batches(lane, own, data)
            shift = self.shift(lane)
            self._rows[lane.id] = array("d", [v + shift for v in data]) if shift else data
        return self._rows[lane.id]

    def batches(self, lane: Lane) -> array[float]:
        """Batch by row; NaN where a row has none."""
        if lane.id not in self._batches:
            self._batches[lane.id] = column(self._connection, lane.id, "~batch").data
        return self._batches[lane.id]

    def shift(self, lane: Lane) -> float:
        """What is added to the axis so that attempts follow each other."""
        if self.axis not in ("time", "tokens"):
            return 0.0
        if lane.attempt not in self._shifts:
            before = [one for one in self.lanes if one.attempt < lane.attempt]
            end = 0.0
            for attempt in sorted({one.attempt for one in before}):
                end = max(end, self._end(attempt, before))
            start = self._begin(lane.attempt) if self.axis == "time" else 0.0
            self._shifts[lane.attempt] = end - start
        return self._shifts[lane.attempt]

    def _end(self, attempt: int, before: list[Lane]) -> float:
        """Axis value of the last row of an attempt that shows."""
        ends = []
        for lane in before:
            if lane.attempt == attempt and self._source(lane) is lane:
                shown = array("d", compress(self.x(lane), _mask(lane)))
                ends.append(max(shown, default=0.0))
        return max(ends, default=0.0)

    def _begin(self, attempt: int) -> float:
        """When an attempt began to train: by its own word, else its first record."""
        row = self._connection.execute(
            "SELECT min(time) FROM records WHERE stream = 'events' AND kind = 'attempt_started'"
            " AND attempt = ?",
            (attempt,),
        ).fetchone()
        if row[0] is not None:
            return float(row[0])
        firsts = [
            column(self._connection, lane.id, "~time").data[:1]
            for lane in self.lanes
            if lane.attempt == attempt
        ]
        return min((first[0] for first in firsts if first), default=0.0)

    def _source(self, lane: Lane) -> Lane:
        """The lane that counts tokens for this one."""
        if self.axis != "tokens" or self._counts_tokens(lane):
            return lane
        return self._tokens_lane.get(lane.attempt, lane)

    def _counts_tokens(self, lane: Lane) -> bool:
        row = self._connection.execute(
            "SELECT tokens > 0 FROM lanes WHERE id = ?", (lane.id,)
        ).fetchone()
        return bool(row[0])

    def _through_batches(self, lane: Lane, own: Lane, data: array[float]) -> array[float]:
        """Tokens that had been sampled by the batch of each row."""
        known = self.batches(own)
        return array(
            "d",
            [
                data[place - 1] if (place := bisect_right(known, batch)) else 0.0
                for batch in self.batches(lane)
            ],
        )


def _mask(lane: Lane) -> list[bool]:
    kept = lane.kept or b""
    return [row >= len(kept) or bool(kept[row]) for row in range(lane.num_rows)]


def _spread(rows: Sequence[int], data: array[float], num_rows: int) -> array[float]:
    """A metric as an axis: its newest value at each row."""
    spread, value, place = array("d"), math.nan, 0
    for row in range(num_rows):
        if place < len(rows) and rows[place] == row:
            value, place = data[place], place + 1
        spread.append(value)
    return spread
