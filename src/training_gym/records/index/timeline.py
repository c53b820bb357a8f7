"""Measured spans, and where the time of each batch went."""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Sequence

from training_gym.records.index.column_reading import column, lanes, shows
from training_gym.records.index.cutting import known_cuts
from training_gym.records.index.span_blocks import lane_of, lanes_of, spans_within
from training_gym.records.index.stream_values import SpanRow, StepTime, Timeline, TimelineQuery
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError, did_you_mean

LANES = ("driver", "trainer", "engine", "env", "reward", "sync")
"""In the order in which they are drawn; others follow by name."""
BUSY = ("trainer", "engine")
"""Lanes whose spans use the accelerator."""
BLAMED = ("sync", "reward", "env", "driver")
"""Who kept it waiting, where several were at work: the first of these."""
LAST_BATCHES = 10


def timeline(
    run: RunDirectory,
    connection: sqlite3.Connection,
    query: TimelineQuery | None,
    running: bool,
) -> Timeline:
    """Spans of a range and what they amount to; `running`: the run has not ended."""
    known = batches(connection)
    asked = query or TimelineQuery(
        first_step=known[max(0, len(known) - LAST_BATCHES)][0] if known else None
    )
    _require_batches(asked, known)
    start, stop = _range(asked, known)
    spans = _spans(run, connection, start, stop)
    if running:
        spans += _from_heartbeats(connection, spans)
    names = lanes_of(connection) | {span.lane for span in spans}
    _require_lanes(asked, names)
    spans = [row for row in spans if _wanted(row, asked)]
    now = time.time()
    shown = sorted(spans, key=lambda span: _length(span, now), reverse=True)[: asked.limit]
    begin = start if start is not None else min((span.start for span in spans), default=None)
    end = stop if stop is not None else max((span.end or now for span in spans), default=None)
    return Timeline(
        spans=tuple(sorted(shown, key=lambda span: (span.start, span.id))),
        omitted=len(spans) - len(shown),
        lanes=(*(lane for lane in LANES if lane in names), *sorted(names - set(LANES))),
        steps=tuple(
            _step_time(step, at, until, spans)
            for step, at, until in known
            if (begin is None or at >= begin - 1e-6) and (end is None or until <= end + 1e-6)
        )
        if spans
        else (),
        start=begin,
        stop=end,
    )


def batches(connection: sqlite3.Connection) -> list[tuple[int, float, float]]:
    """Number, start and end of every batch that shows, from its metrics."""
    found: dict[int, tuple[float, float]] = {}
    for lane in lanes(connection):
        seconds = column(connection, lane.id, "step_seconds")
        if not seconds.data:
            continue
        ends: array[float] = column(connection, lane.id, "~time").data
        numbers = column(connection, lane.id, "~batch").data
        for row, length in zip(seconds.rows, seconds.data, strict=True):
            if shows(lane, row) and numbers[row] == numbers[row]:
                found[int(numbers[row])] = (ends[row] - length, ends[row])
    return [(step, *found[step]) for step in sorted(found)]


def _require_batches(query: TimelineQuery, known: list[tuple[int, float, float]]) -> None:
    """Raise `RecordsError` for batches that the run does not have; the next may have begun."""
    if not known:
        return
    oldest, newest = known[0][0], known[-1][0]
    beyond = query.first_step is not None and query.first_step > newest + 1
    if beyond or (query.last_step is not None and query.last_step < oldest):
        asked = query.first_step if beyond else query.last_step
        raise RecordsError(
            f"there is no batch {asked} in this run", fix=f"it has batches {oldest} to {newest}"
        )


def _require_lanes(query: TimelineQuery, names: set[str]) -> None:
    """Raise `RecordsError` for a lane that neither this run nor another has."""
    for lane in query.lanes:
        if lane not in names and lane not in LANES:
            raise RecordsError(
                f"no lane is called {lane!r:.60}", fix=did_you_mean(lane, names or LANES)
            )


def _range(
    query: TimelineQuery, known: list[tuple[int, float, float]]
) -> tuple[float | None, float | None]:
    start, stop = query.start, query.stop
    if query.first_step is not None:
        begin = [at for step, at, _ in known if step >= query.first_step]
        start = max(start or 0.0, begin[0]) if begin else start
    if query.last_step is not None:
        end = [until for step, _, until in known if step <= query.last_step]
        if end:
            stop = end[-1] if stop is None else min(stop, end[-1])
    return start, stop


def _spans(
    run: RunDirectory, connection: sqlite3.Connection, start: float | None, stop: float | None
) -> list[SpanRow]:
    newest = connection.execute("SELECT max(attempt) FROM segments").fetchone()[0]
    return [
        span
        for span in spans_within(run, connection, start, stop, known_cuts(connection))
        # What an ended attempt left open is open no more.
        if span.end is not None or span.attempt == newest
    ]


def _wanted(span: SpanRow, query: TimelineQuery) -> bool:
    return not query.lanes or span.lane in query.lanes


def _from_heartbeats(connection: sqlite3.Connection, known: list[SpanRow]) -> list[SpanRow]:
    """What the newest heartbeats of the newest attempt say to be going on."""
    found = []
    for writer, attempt, moment, fields in connection.execute(
        "SELECT writer, attempt, time, fields FROM heartbeats"
        " WHERE attempt = (SELECT max(attempt) FROM segments)"
    ):
        for number, work in enumerate(json.loads(fields).get("open") or ()):
            if not isinstance(work, dict) or not isinstance(work.get("age_s"), int | float):
                continue
            component = str(work.get("component", ""))
            lane = lane_of(component)
            if any(span.end is None and span.lane == lane for span in known):
                continue
            found.append(
                SpanRow(
                    id=-1 - number,
                    lane=lane,
                    writer=writer,
                    name=component,
                    start=moment - float(work["age_s"]),
                    end=None,
                    step=None,
                    attempt=attempt,
                    fields={key: v for key, v in work.items() if key in ("count", "what")},
                )
            )
    return found


def _length(span: SpanRow, now: float) -> float:
    return (span.end or now) - span.start


def _step_time(step: int, start: float, end: float, spans: Sequence[SpanRow]) -> StepTime:
    changes: list[tuple[float, int, str]] = []
    for span in spans:
        first, last = max(span.start, start), min(span.end or end, end)
        if last > first:
            changes += [(first, 1, span.lane), (last, -1, span.lane)]
    changes.sort()
    seconds: dict[str, float] = {}
    blame: dict[str, float] = {}
    active: dict[str, int] = {}
    at, idle = start, 0.0
    for moment, change, lane in [*changes, (end, 0, "")]:
        passed, at = moment - at, moment
        open_lanes = [name for name, number in active.items() if number > 0]
        for name in open_lanes:
            seconds[name] = seconds.get(name, 0.0) + passed
        if passed > 0 and not any(name in open_lanes for name in BUSY):
            idle += passed
            who = next((name for name in BLAMED if name in open_lanes), "none")
            blame[who] = blame.get(who, 0.0) + passed
        if lane:
            active[lane] = active.get(lane, 0) + change
    return StepTime(step=step, start=start, end=end, seconds=seconds, idle_s=idle, blame=blame)
