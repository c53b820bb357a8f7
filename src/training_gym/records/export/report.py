"""A run as one page of HTML: verdict, curves, evaluations, episodes. It needs nothing else.

All text is escaped, there is no script, and a policy forbids the page to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from training_gym.records.export.drawing import curve
from training_gym.records.index import (
    EpisodeDetail,
    EpisodeQuery,
    EvaluationRow,
    Index,
    Overview,
    SeriesQuery,
)

EPISODES = 12
LONGEST = 6000
"""Characters of a message that are shown."""

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; }
body { padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
.verdict { font-size: 1.15rem; padding: .6rem .9rem; background: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .85rem; } svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .6rem; }
details { margin: .4rem 0; } summary { cursor: pointer; }
"""


def write_report(index: Index, run_id: str, folder: Path) -> tuple[Path, ...]:
    """`<run id>.html`."""
    path = folder / f"{run_id}.html"
    with open(path, "x", encoding="utf-8", errors="replace") as file:
        file.write(report(index, run_id))
    return (path,)


def report(index: Index, run_id: str) -> str:
    """The page's text."""
    found = index.overview(run_id)
    title = found.row.name or run_id
    best = index.episodes(run_id, EpisodeQuery(stream="train", order="reward", limit=EPISODES // 2))
    last = index.episodes(run_id, EpisodeQuery(stream="train", limit=EPISODES // 2))
    chosen = dict.fromkeys(row.id for row in (*best.episodes, *last.episodes))
    shown = [index.episode(run_id, episode, tokens=False) for episode in chosen]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1><p>{escape(run_id)}</p>",
        f'<p class="verdict">{escape(found.row.verdict)}</p>',
        _facts(found),
        "<h2>Curves</h2>",
        _charts(index, run_id, found.metrics),
        _evaluations(index.evaluations(run_id)),
        _settings(found),
        "<h2>Episodes</h2><p>Those with the greatest reward, then the newest.</p>",
        *(_episode(one) for one in shown),
        f"<footer><p>Written by Training Gym, {_moment(found.row.updated_at)} UTC.</p></footer>",
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _facts(found: Overview) -> str:
    row = found.row
    total = "" if row.num_steps is None else f" of {row.num_steps}"
    facts = [
        ("status", row.status),
        ("model", row.model),
        ("step", f"{row.step}{total}"),
        (row.reward_name, "–" if row.reward is None else f"{row.reward:.4g}"),
        ("attempts", str(len(found.attempts))),
        ("started", _moment(row.created_at) + " UTC"),
        ("wall time", _span(row.wall_s)),
    ]
    if row.tags:
        facts.append(("tags", ", ".join(row.tags)))
    if row.cost is not None:
        facts.append(("cost", f"{row.cost:.2f}"))
    return _table((), facts)


def _charts(index: Index, run_id: str, names: Sequence[str]) -> str:
    if not names:
        return "<p>No metrics yet.</p>"
    literal = tuple("".join(f"[{c}]" if c in "*?[" else c for c in name) for name in names)
    drawn = index.series((run_id,), SeriesQuery(names=literal, max_points=300))
    by_name = {series.name: series for series in drawn}
    return f'<div class="charts">{"".join(curve(by_name[n]) for n in names if n in by_name)}</div>'


def _evaluations(rows: Sequence[EvaluationRow]) -> str:
    if not rows:
        return ""
    cells = [
        (
            row.suite,
            str(row.figure.step),
            f"{row.figure.mean:.3f}",
            f"{row.figure.low:.3f} to {row.figure.high:.3f}",
            "" if row.difference is None else f"{row.difference.mean:+.3f}",
            str(row.figure.count),
        )
        for row in rows
    ]
    head = ("suite", "step", "mean", "95 %", "to the first", "tasks")
    return f"<h2>Evaluations</h2>{_table(head, cells)}"


def _settings(found: Overview) -> str:
    origins = found.manifest.get("origins")
    chosen = (
        [path for path, o in origins.items() if o == "user"] if isinstance(origins, dict) else []
    )
    rows = [(path, str(_at(found.manifest.get("run"), path))) for path in chosen]
    return f"<h2>Set by the user</h2>{_table((), rows)}" if rows else ""


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        if isinstance(value, list) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _episode(found: EpisodeDetail) -> str:
    row = found.row
    reward = "not judged" if row.reward is None else f"reward {row.reward:.3g}"
    parts = [f"{name} {value:.3g}" for name, value in row.components.items()]
    head = f"step {row.step} · {row.id} · {reward} · {row.status} · {row.tokens} tokens"
    if parts:
        head += f" ({', '.join(parts)})"
    messages = found.episode.get("messages")
    body = [
        f"<h4>{escape(str(message.get('role')))}</h4><pre>{escape(_said(message))}</pre>"
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict)
    ]
    return f"<details><summary>{escape(head)}</summary>{''.join(body)}</details>"


def _said(message: dict[str, Any]) -> str:
    from training_gym.records.index.episode_heads import text_of

    text = text_of(message)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        text += f"\n→ {call.get('name')} {call.get('arguments')}"
    return text if len(text) <= LONGEST else text[:LONGEST] + f"… ({len(text)} characters)"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<thead><tr>{top}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
