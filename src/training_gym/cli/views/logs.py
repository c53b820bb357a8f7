"""`training-gym logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import PageCursor, Since, cursor_or_time, marked

LEVELS = ("debug", "info", "warning", "error")


def logs(
    run_id: RunId,
    level: Annotated[str | None, typer.Option(help="This or worse: " + ", ".join(LEVELS))] = None,
    grep: Annotated[str, typer.Option(metavar="REGEX", help="Only lines that match.")] = "",
    source: Annotated[
        list[str] | None, typer.Option(help="stdout, stderr, a file's name; may be repeated.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Only from where this batch began on.")
    ] = None,
    since: Since = None,
    page: PageCursor = "",
    limit: Limit = 200,
    as_json: AsJson = False,
) -> None:
    """Find log lines: the newest that match, oldest first."""
    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.cli.views.common import emit_value, moment, open_index, run_id_of
    from training_gym.records.index import LogQuery
    from training_gym.spec.errors import did_you_mean

    if level is not None and level not in LEVELS:
        raise UsageError(f"no level is called {level!r}", fix=did_you_mean(level, LEVELS))
    newer, after = cursor_or_time(since)
    found = open_index().logs(
        run_id_of(run_id),
        LogQuery.read(
            {
                "level": level,
                "regex": grep,
                "source": tuple(source or ()),
                "step": step,
                "since": after,
                "cursor": page or newer,
                "limit": min(limit, 5000),
            }
        ),
    )
    for one in source or ():
        if one not in found.sources:
            known = did_you_mean(one, found.sources) if found.sources else "there are no lines yet"
            output.say(f"no lines come from {one!r}: {known}")
    if as_json:
        for line in found.lines:
            emit_value("logs/1", line)
        output.emit(
            "logs.page/1",
            shown=len(found.lines),
            complete=found.complete,
            older=found.older,
            newer=marked(found.newer),
            sources=list(found.sources),
        )
        return
    for line in found.lines:
        mark = "" if line.level == "info" else f"{line.level.upper()} "
        output.data(f"{moment(line.time)} {line.source} {mark}{line.text.rstrip()}")
    if not found.lines and not found.older:
        output.say("no lines are like that")
    if found.older:
        output.say(f"older lines: --page {found.older}")
