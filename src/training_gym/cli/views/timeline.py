"""`training-gym timeline`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from training_gym.cli.options import AsJson, Limit, RunId


def timeline(
    run_id: RunId,
    step: Annotated[
        str | None, typer.Option(metavar="RANGE", help="Batches: 3, 2..5; else the last ten.")
    ] = None,
    lane: Annotated[list[str] | None, typer.Option(help="Only this lane; may be repeated.")] = None,
    limit: Limit = 5000,
    as_json: AsJson = False,
) -> None:
    """Show where the time of batches went, as measured."""
    from training_gym.cli import output
    from training_gym.cli.views.common import emit_value, open_index, range_of, run_id_of
    from training_gym.records.index import TimelineQuery

    index, run = open_index(), run_id_of(run_id)
    steps = range_of(step, "--step")
    query = None
    if steps is not None or lane or limit != 5000:
        query = TimelineQuery(
            first_step=None if steps is None or steps.low is None else int(steps.low),
            last_step=None if steps is None or steps.high is None else int(steps.high),
            lanes=tuple(lane or ()),
            limit=limit,
        )
    found = index.timeline(run, query)
    if as_json:
        emit_value("timeline/1", found)
        return
    lanes = [name for name in found.lanes if any(name in one.seconds for one in found.steps)]
    output.table(
        ["batch", "seconds", *lanes, "idle", "kept waiting by"],
        [
            (
                one.step,
                _seconds(one.end - one.start),
                *(_seconds(one.seconds.get(name)) for name in lanes),
                _seconds(one.idle_s),
                _blamed(one.blame),
            )
            for one in found.steps
        ],
    )
    for span in found.spans:
        if span.end is None:
            output.data(f"still open: {span.lane} {span.name}")
    if not found.spans:
        output.say("no spans in that range")


def _seconds(value: float | None) -> str:
    """Seconds to the millisecond; a dash for none, and for less than that."""
    if value is None or value < 0.0005:
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _blamed(seconds: Mapping[str, float]) -> str:
    """Who kept the accelerator waiting, the longest first."""
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{who} {_seconds(s)}" for who, s in ordered if s >= 0.0005)
