"""Spans in the Trace Event format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training_gym.records.index import Index, TimelineQuery


def write_trace(index: Index, run_id: str, folder: Path) -> tuple[Path, ...]:
    """`trace.json`: a process for each writer, a thread for each lane, times in microseconds.

    The format: "Trace Event Format", Google, complete (`X`) and metadata (`M`) events.
    """
    found = index.timeline(run_id, TimelineQuery(limit=100_000))
    origin = min((span.start for span in found.spans), default=0.0)
    writers = {name: number for number, name in enumerate(sorted({s.writer for s in found.spans}))}
    lanes = {name: number for number, name in enumerate(found.lanes)}
    last = max((span.end or span.start for span in found.spans), default=origin)
    events: list[dict[str, Any]] = [
        _named("process_name", writer, pid=number) for writer, number in writers.items()
    ]
    pairs = sorted({(span.writer, span.lane) for span in found.spans})
    events += [
        _named("thread_name", lane, pid=writers[writer], tid=lanes[lane]) for writer, lane in pairs
    ]
    events += [
        {
            "ph": "X",
            "name": span.name,
            "cat": span.lane,
            "ts": round((span.start - origin) * 1e6),
            "dur": round(((span.end if span.end is not None else last) - span.start) * 1e6),
            "pid": writers[span.writer],
            "tid": lanes[span.lane],
            "args": {"step": span.step, "attempt": span.attempt, **span.fields},
        }
        for span in found.spans
    ]
    path = folder / "trace.json"
    with open(path, "x", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
    return (path,)


def _named(what: str, name: str, **place: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "args": {"name": name}, **place}
