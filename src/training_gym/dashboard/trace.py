"""Spans as Chrome's trace events, which Perfetto and chrome://tracing open."""

from __future__ import annotations

from typing import Any

from training_gym.records.index import Timeline


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """Complete (`X`) events, begun ones (`B`) where a span is still open; times in microseconds."""
    lanes = {lane: number for number, lane in enumerate(timeline.lanes)}
    zero = min((span.start for span in timeline.spans), default=0.0)
    names = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": lane}}
        for lane, number in lanes.items()
    ]
    events = []
    for span in timeline.spans:
        event: dict[str, Any] = {
            "name": span.name,
            "cat": span.lane,
            "pid": 1,
            "tid": lanes.get(span.lane, len(lanes)),
            "ts": round((span.start - zero) * 1e6),
            "args": {"step": span.step, "writer": span.writer, **span.fields},
        }
        if span.end is None:
            events.append({**event, "ph": "B"})
        else:
            events.append({**event, "ph": "X", "dur": round((span.end - span.start) * 1e6)})
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}
