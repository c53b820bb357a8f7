"""`training-gym metrics`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId

AXES = ("batch", "step", "tokens", "time", "cost")


def metrics(
    run_id: RunId,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only metrics like this; may be repeated."),
    ] = None,
    x: Annotated[str, typer.Option(help="batch, step, tokens, time (seconds) or cost.")] = "batch",
    start: Annotated[float | None, typer.Option(help="Only from this x on.")] = None,
    stop: Annotated[float | None, typer.Option(help="Only up to this x.")] = None,
    points: Annotated[
        int, typer.Option(min=2, max=100_000, help="Points of a curve at most.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show curves: each metric over the run, reduced to a few points that keep its extremes."""
    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.cli.views.common import emit_value, open_index, require_metrics, run_id_of
    from training_gym.records.index import SeriesQuery
    from training_gym.spec.errors import did_you_mean

    if x not in AXES:
        raise UsageError(f"no axis is called {x!r}", fix=did_you_mean(x, AXES))
    query = SeriesQuery.read(
        {"names": name or ["*"], "x": x, "start": start, "stop": stop, "max_points": points}
    )
    index, run = open_index(), run_id_of(run_id)
    known = index.metric_names(run)
    if not known:
        output.say(f"{run} has recorded no metrics")
        return
    require_metrics(name or (), [metric.name for metric in known])
    if not name and not as_json:
        if query != SeriesQuery(names=("*",), max_points=20):
            raise UsageError(
                "--x, --start, --stop and --points shape curves, and none is named",
                fix="add --name reward_mean, or --name '*' for all",
            )
        output.table(
            ["metric", "points", "newest", "at batch"],
            [(metric.name, metric.count, metric.last, metric.last_batch) for metric in known],
        )
        return
    curves = index.series((run,), query)
    if as_json:
        for curve in curves:
            emit_value("metrics/1", curve)
        return
    for curve in curves:
        low = curve.low or curve.mean
        high = curve.high or curve.mean
        output.data(f"── {curve.name} · {curve.count} points")
        output.table(
            [x, "mean", "lowest", "highest"],
            list(zip(curve.x, curve.mean, low, high, strict=True)),
        )
