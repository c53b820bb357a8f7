"""`training-gym episodes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import PageCursor, Since, time_of

if TYPE_CHECKING:
    from training_gym.records.index import (
        EpisodeDetail,
        EpisodePage,
        EpisodeQuery,
        EpisodeRow,
        Index,
    )

ORDERS = ("newest", "oldest", "reward", "length", "duration", "staleness")
STATUSES = ("finished", "truncated", "model_failed", "infrastructure_failed")
Bounds = Annotated[str | None, typer.Option(metavar="RANGE", help="3, 2..5, 0.5.. or ..1")]


def episodes(
    run_id: RunId,
    episode: Annotated[
        str | None, typer.Argument(metavar="[EPISODE]", help="Show this one whole.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="train, eval:NAME, or eval for all evaluations.")
    ] = None,
    step: Bounds = None,
    reward: Bounds = None,
    length: Bounds = None,
    staleness: Bounds = None,
    status: Annotated[list[str] | None, typer.Option(help=f"{', '.join(STATUSES)}.")] = None,
    task: Annotated[str | None, typer.Option(help="Only attempts at this task.")] = None,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    text: Annotated[str, typer.Option(help="Only those whose conversation says this.")] = "",
    error: Annotated[str, typer.Option(help="Only those that ended for a reason like this.")] = "",
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Only those that taught nothing, with the reason.")
    ] = False,
    order: Annotated[str, typer.Option(help=f"{', '.join(ORDERS)}.")] = "newest",
    ascending: Annotated[bool, typer.Option("--ascending", help="The least first.")] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="With EPISODE and --json: token columns as well.")
    ] = False,
    since: Since = None,
    page: PageCursor = "",
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Find episodes, or show one whole."""
    from training_gym.cli.failures import UsageError
    from training_gym.cli.views.common import open_index, range_of, run_id_of
    from training_gym.records.index import EpisodeQuery
    from training_gym.spec.errors import did_you_mean

    for given, known in ((order, ORDERS), *((one, STATUSES) for one in status or ())):
        if given not in known:
            raise UsageError(f"{given!r} is not known", fix=did_you_mean(given, known))
    if tokens and (episode is None or not as_json):
        raise UsageError("--tokens is for one episode as JSON", fix="give EPISODE, and add --json")
    index, run = open_index(), run_id_of(run_id)
    query = EpisodeQuery.read(
        {
            "stream": stream,
            "step": range_of(step, "--step"),
            "reward": range_of(reward, "--reward"),
            "length": range_of(length, "--length"),
            "staleness": range_of(staleness, "--staleness"),
            "status": tuple(status or ()),
            "task": task,
            "group": group,
            "text": text,
            "error": error,
            "discarded": True if discarded else None,
            "order": order,
            "descending": not ascending,
            "since": time_of(since),
            "cursor": page,
            "limit": min(limit, 1000),
        }
    )
    if episode is None:
        _many(index.episodes(run, query), as_json=as_json)
        _say_unknown(index, run, query)
        return
    if query != EpisodeQuery(limit=20):
        raise UsageError(
            f"{episode!r} names one episode, and options choose among many",
            fix="leave out either EPISODE or those options",
        )
    _one(index, run, episode, tokens=tokens, as_json=as_json)


def _say_unknown(index: Index, run: str, query: EpisodeQuery) -> None:
    """Tell of an evaluation that the run has not recorded: perhaps it is written differently."""
    from training_gym.cli import output
    from training_gym.spec.errors import did_you_mean

    _, _, suite = (query.stream or "").partition("eval:")
    known = {row.suite for row in index.evaluations(run)} if suite else set()
    if suite and suite not in known:
        hint = did_you_mean(suite, known) if known else "there is none so far"
        output.say(f"{run} has recorded no evaluation {suite!r}: {hint}")


def _one(index: Index, run: str, episode: str, *, tokens: bool, as_json: bool) -> None:
    from training_gym.cli.views.common import emit_value

    found = index.episode(run, episode, tokens=tokens and as_json)
    if as_json:
        emit_value("episode/1", found)
        return
    _show(found)


def _many(page: EpisodePage, *, as_json: bool) -> None:
    from training_gym.cli import output
    from training_gym.cli.views.common import emit_value

    if as_json:
        for row in page.episodes:
            emit_value("episodes/1", row)
        output.emit(
            "episodes.page/1",
            shown=len(page.episodes),
            total=page.total,
            complete=page.complete,
            cursor=page.cursor,
        )
        return
    output.table(
        ["episode", "stream", "step", "status", "reward", "tokens", "answer"],
        [
            (row.id, row.stream, row.step, _state(row), row.reward, row.tokens, row.preview[:60])
            for row in page.episodes
        ],
    )
    if page.cursor:
        rest = "" if page.total is None else f" of {page.total}"
        output.say(f"{len(page.episodes)}{rest}; more with --page {page.cursor}")
    if not page.episodes:
        output.say("no episodes are like that")


def _state(row: EpisodeRow) -> str:
    return f"{row.status}: {row.discarded}" if row.discarded else row.status


def _show(found: EpisodeDetail) -> None:
    from training_gym.cli import output
    from training_gym.cli.runs.episodes import text_of

    row = found.row
    parts = ", ".join(f"{name} {output.number(v)}" for name, v in row.components.items())
    worth = "not judged" if row.reward is None else output.number(row.reward)
    output.data(f"{row.id} · {row.stream} · step {row.step} · {row.status}")
    output.data(f"reward {worth}" + (f" ({parts})" if parts else ""))
    if row.advantage is not None:
        output.data(f"advantage {output.number(row.advantage)}")
    for reason in (row.reason, row.discarded):
        if reason:
            output.data(f"reason: {reason}")
    messages = found.episode.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            output.data(f"{message.get('role')}: {text_of(message)}")
