"""`training-gym compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Two or more runs.")],
    name: Annotated[
        list[str] | None, typer.Option(help="A metric to compare by; may be repeated.")
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="With two runs: definition and source, line by line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set runs side by side: what they reached and how their definitions differ."""
    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.cli.views.common import emit_value, open_index, run_id_of

    index, ids = open_index(), list(dict.fromkeys(run_id_of(run) for run in runs))
    if len(ids) < 2:
        raise UsageError("one run has nothing to be compared with", fix="name two or more")
    if diff:
        if len(ids) != 2:
            raise UsageError(f"--diff takes two runs, not {len(ids)}", fix="name the older first")
        found = index.config_difference(*ids)
        if as_json:
            emit_value("compare.diff/1", found)
            return
        for change in (*found.changes, *found.environment):
            output.data(f"{change.path}: {change.before!r} → {change.after!r}")
        for source in found.sources:
            output.data(f"{source.state}: {source.path}")
            output.data(source.diff)
        return
    compared = index.compare(ids, tuple(name or ()))
    if as_json:
        emit_value("compare/1", compared)
        return
    rows: list[list[object]] = [["step", *(one.row.step for one in compared.runs)]]
    rows += [[m, *(one.values[m] for one in compared.runs)] for m in compared.metrics]
    suites = sorted({figure.name for one in compared.runs for figure in one.evaluations})
    for suite in suites:
        means = [{f.name: f.mean for f in one.evaluations}.get(suite) for one in compared.runs]
        rows.append([f"evaluation {suite}", *means])
    rows += [
        [path, *(str(one.settings.get(path)) for one in compared.runs)]
        for path in compared.differing
    ]
    output.table(["", *(one.row.run_id for one in compared.runs)], rows)
