"""`training-gym runs logs`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import Since

if TYPE_CHECKING:
    from training_gym.cli.runs.paging import Page

LONGEST = 65_536
"""Characters of a line that are shown."""
POLL_S = 0.5
"""How often `--follow` looks for new lines."""


def logs(
    run_id: RunId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    limit: Limit = 100,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run's processes wrote.

    Newest lines last; terminal escapes are shown as text.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.cli.runs.paging import read_records

    run = find_run(run_id)
    files = files_of(run)
    page = read_records(files, "logs", since=since, limit=limit)
    if page.omitted:
        output.say(f"{page.omitted} older lines left out: raise --limit to see them")
    _show(page, as_json)
    while follow:
        ended = run.status not in ("queued", "running")  # before reading: nothing comes after it
        page = read_records(files, "logs", since=page.cursor, limit=limit)
        _show(page, as_json)
        if ended and not page.records:
            break
        if not page.records:
            time.sleep(POLL_S)
    if as_json:
        output.emit("runs.page/1", **page.closing())


def _show(page: Page, as_json: bool) -> None:
    from training_gym.cli import output
    from training_gym.cli.runs.paging import stamp

    for record in page.records:
        if as_json:
            output.emit("runs.logs/1", **stamp(record), **_fields(record))
        else:
            output.data(_cut(record["text"].rstrip("\n")))


def _cut(text: str) -> str:
    """A line that a terminal can take."""
    rest = len(text) - LONGEST
    return text if rest <= 0 else f"{text[:LONGEST]}… {rest} more characters: --json has them"


def _fields(record: dict[str, Any]) -> dict[str, Any]:
    return {"source": record.get("source"), "text": record["text"]}
