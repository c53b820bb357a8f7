"""Bounded output: the newest records, or those after a cursor, and where to go on.

`--since` means the same in every command: only what came after. In JSON every page of records ends
with a `runs.page/1` object: how many it left out, and the cursor that `--since` takes to continue
without a gap or a repetition. `--page` turns the pages of a list, whose order may be any.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from training_gym.records.run_directory import RunDirectory, Stream

Since = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="Only what came after: 90s, 10m, 2h, 1d ago, an ISO time, or a page's cursor.",
    ),
]
PageCursor = Annotated[
    str, typer.Option("--page", metavar="CURSOR", help="The next page, by this one's cursor.")
]

Keep = Callable[[dict[str, Any]], bool]

_CURSOR = "c-"
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Page:
    """Some records, oldest first."""

    records: list[dict[str, Any]]
    omitted: int
    """Older records that match, left out because of the limit."""
    cursor: str
    damaged: int
    """Lines of the run's files that could not be read."""

    def closing(self) -> dict[str, Any]:
        """The fields of the `runs.page/1` object that ends a page."""
        return {
            "shown": len(self.records),
            "omitted": self.omitted,
            "damaged": self.damaged,
            "cursor": self.cursor,
        }


def read_records(
    run: RunDirectory,
    stream: Stream,
    *,
    since: str | None,
    limit: int,
    keep: Keep = lambda _: True,
) -> Page:
    """The newest `limit` records that match, or after a cursor the next `limit`.

    Args:
        run: whose records.
        stream: which of them.
        since: a cursor, a duration before now, or an ISO time; None: from the start.
        limit: records to return at most.
        keep: which records match.
    """
    from training_gym.records.readers import read_page

    if since is not None and since.startswith(_CURSOR):
        return _after(run, stream, _opened(since), limit, keep)
    after = time_of(since)
    page = read_page(run, stream)
    found = [r for r in page.records if keep(r) and (after is None or r["time"] > after)]
    omitted = max(0, len(found) - limit)
    return Page(found[omitted:], omitted, closed(page.cursor), page.damaged)


def _after(run: RunDirectory, stream: Stream, cursor: str, limit: int, keep: Keep) -> Page:
    """Read on from a cursor until `limit` records match or there are no more."""
    from training_gym.records.readers import read_page

    found: list[dict[str, Any]] = []
    damaged = 0
    while len(found) < limit:
        page = read_page(run, stream, since=cursor, limit=limit - len(found))
        found += [record for record in page.records if keep(record)]
        damaged += page.damaged
        if page.cursor == cursor:
            break
        cursor = page.cursor
    return Page(found, 0, closed(cursor), damaged)


def stamp(record: Mapping[str, Any]) -> dict[str, Any]:
    """What every record's JSON begins with: when, in which attempt, at which counters."""
    return {
        "time": datetime.fromtimestamp(record["time"], UTC).isoformat(timespec="milliseconds"),
        "attempt": record["attempt"],
        "batch": record["batch"],
        "optimizer_step": record["optimizer_step"],
        "policy_version": record["policy_version"],
    }


def time_of(since: str | None) -> float | None:
    """Seconds since 1970 that `--since` stands for, if it was given; raises `UsageError`."""
    return None if since is None else moment(since, time.time())


def cursor_or_time(since: str | None) -> tuple[str, float | None]:
    """What `--since` gives to the index: a cursor, or seconds since 1970; raises `UsageError`."""
    if since is not None and since.startswith(_CURSOR):
        return since.removeprefix(_CURSOR), None
    return "", time_of(since)


def marked(cursor: str) -> str:
    """An index's cursor as `--since` takes it."""
    return _CURSOR + cursor


def moment(text: str, now: float) -> float:
    """Seconds since 1970 of a duration before `now` or an ISO time; raises `UsageError`."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago.group(1)) * _SECONDS[ago.group(2)]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise _unreadable(text) from None
    return (at if at.tzinfo else at.astimezone()).timestamp()


def closed(cursor: str) -> str:
    """Our readers' cursor as one word that needs no quoting in a shell."""
    return _CURSOR + base64.urlsafe_b64encode(cursor.encode()).decode().rstrip("=")


def _opened(word: str) -> str:
    body = word.removeprefix(_CURSOR)
    try:
        padded = body + "=" * (-len(body) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _unreadable(word) from None


def _unreadable(text: str) -> Exception:
    from training_gym.cli.failures import UsageError

    return UsageError(
        f"--since {text!r} is neither a duration, a time nor a cursor",
        fix="write 10m, 2026-01-31T12:00, or the cursor that a page of --json ended with",
    )
