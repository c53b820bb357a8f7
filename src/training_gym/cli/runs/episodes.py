"""`training-gym runs episodes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import Since

if TYPE_CHECKING:
    from training_gym.cli.runs.paging import Page


def episodes(
    run_id: RunId,
    stream: Annotated[
        str | None, typer.Option(help="Only those of `train`, or of the evaluation of this name.")
    ] = None,
    limit: Limit = 5,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Show episodes: prompts, answers, rewards.

    Newest last, without their tokens.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.cli.runs.paging import read_records, stamp

    run = find_run(run_id)
    if since is None:
        page = _newest(run.id, stream, limit)
    else:
        page = read_records(
            files_of(run),
            "episodes",
            since=since,
            limit=limit,
            keep=lambda record: _in_stream(record, stream),
        )
    if as_json:
        for record in page.records:
            output.emit("runs.episodes/1", **stamp(record), **_fields(record["episode"]))
        output.emit("runs.page/1", **page.closing())
        return
    if page.omitted:
        output.say(f"{page.omitted} older episodes left out: raise --limit to see them")
    if not page.records:
        output.say("no episodes yet" if stream is None else f"no episodes of {stream!r}")
    for record in page.records:
        _show(record)


def _newest(run_id: str, stream: str | None, limit: int) -> Page:
    """From the index: a run may have more episodes than one wants to read for a page."""
    from training_gym.cli.runs.paging import Page, closed
    from training_gym.cli.views.common import open_index

    found = open_index().newest_episode_records(run_id, stream, limit=limit)
    return Page(list(found.records), found.omitted, closed(found.cursor), found.damaged)


def _in_stream(record: dict[str, Any], stream: str | None) -> bool:
    found = record["episode"]["stream"]
    return stream is None or found in (stream, f"eval:{stream}")


def _fields(episode: dict[str, Any]) -> dict[str, Any]:
    """An episode without its tokens."""
    score = episode.get("score")
    return {
        "episode": episode["id"],
        "stream": episode["stream"],
        "group": episode["group"],
        "member": episode["member"],
        "task": episode["task"]["id"],
        "answer": episode["task"].get("answer"),
        "status": episode["outcome"]["status"],
        "reason": episode["outcome"].get("reason", ""),
        "reward": None if score is None else score["value"],
        "components": {} if score is None else score.get("components", {}),
        "duration_s": episode.get("duration_s"),
        "messages": [
            {"role": message["role"], "text": text_of(message)} for message in episode["messages"]
        ],
    }


def text_of(message: dict[str, Any]) -> str:
    """The text of a recorded message, its parts joined."""
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", f"[{part['type']}]") for part in content)


def _show(record: dict[str, Any]) -> None:
    from training_gym.cli import output

    fields = _fields(record["episode"])
    parts = ", ".join(f"{key} {output.number(v)}" for key, v in fields["components"].items())
    head = f"── {fields['episode']} · {fields['stream']} · {fields['status']}"
    reward = "not judged" if fields["reward"] is None else output.number(fields["reward"])
    output.data(f"{head} · reward {reward}" + (f" ({parts})" if parts else ""))
    if fields["reason"]:
        output.data(f"reason: {fields['reason']}")
    for message in fields["messages"]:
        output.data(f"{message['role']}: {message['text']}")
    output.data("")
