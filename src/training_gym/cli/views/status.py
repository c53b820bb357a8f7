"""`training-gym status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, Limit

if TYPE_CHECKING:
    from training_gym.records.index import RunRow


def status(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Run id, or a unique beginning of it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with this tag.")] = None,
    text: Annotated[str, typer.Option(help="Only runs whose id, name, model or tag has it.")] = "",
    limit: Limit = 20,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Leave with the code of the worst verdict."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say how runs are: the verdict first."""
    from training_gym.cli import output
    from training_gym.cli.views.common import emit_value, open_index, run_id_of
    from training_gym.records.index import RunQuery

    index = open_index()
    if run is not None:
        rows: tuple[RunRow, ...] = (index.overview(run_id_of(run)).row,)
        left_out = 0
    else:
        query = RunQuery(tags=tuple(tag or ()), text=text, limit=limit)
        page = index.runs(query)
        while not all(row.indexed for row in page.runs):  # each listing reads some more
            page = index.runs(query)
        rows, left_out = page.runs, page.total - len(page.runs)
    if as_json:
        for row in rows:
            emit_value("status/1", row)
        output.emit("status.page/1", shown=len(rows), omitted=left_out)
    else:
        for row in rows:
            _show(row)
        if left_out:
            output.say(f"{left_out} older runs left out: raise --limit to see them")
        if not rows:
            output.say("no runs: start one with training-gym quickstart")
    if exit_code:
        raise typer.Exit(max((verdict_code(row.level) for row in rows), default=0))


def verdict_code(level: str) -> int:
    """Exit code of a verdict's level."""
    from training_gym.cli.failures import HEALTH_CRITICAL, HEALTH_DEGRADED

    return {"degraded": HEALTH_DEGRADED, "critical": HEALTH_CRITICAL}.get(level, 0)


def _show(row: RunRow) -> None:
    from training_gym.cli import output

    total = "" if row.num_steps is None else f"/{row.num_steps}"
    parts = [row.status, f"step {row.step}{total}"]
    if row.reward is not None:
        parts.append(f"{row.reward_name} {output.number(row.reward)}")
    if row.evaluation is not None:
        parts.append(f"{row.evaluation.name} {output.number(row.evaluation.mean)}")
    if row.phase:
        parts.append(row.phase)
    if row.heartbeat_age_s is not None:
        parts.append(f"heartbeat {output.span(row.heartbeat_age_s)} ago")
    output.data(f"{row.run_id}  {row.verdict}")
    output.data(f"  {' · '.join(parts)}")
