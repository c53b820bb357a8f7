"""Pages of episodes: conditions become SQL, a search for text reads the files, cursors go on."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.records.index.episode_heads import STATUSES, TRAIN
from training_gym.records.index.episode_values import EpisodePage, EpisodeQuery, EpisodeRow, Range
from training_gym.records.index.places import read_line
from training_gym.records.index.schema import COMPONENT_COLUMNS
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError

SEARCH_S = 0.4
"""How long a search for text reads before it gives what it has found."""
_EQUAL = 1e-6
"""Rewards of a group that lie within this are equal."""

ROW = """
SELECT e.id, e.key, st.word, g.key, e.member, g.task, en.word, e.step, e.optimizer_step,
    e.policy_version, e.attempt, e.time, e.status, t.reason, e.reward, t.components,
    g.mean, g.deviation, g.judged, g.low, g.high, e.tokens, e.prompt_tokens, e.turns,
    e.staleness, e.mean_logprob, e.duration_s, e.retries, e.dropped, e.hidden, t.preview,
    e.segment, e.offset, e.length
FROM episodes e
JOIN groups g ON g.id = e.in_group
JOIN words st ON st.id = e.stream
JOIN words en ON en.id = e.environment
JOIN episode_texts t ON t.id = e.id
"""
_ORDER = {
    "newest": "e.time",
    "oldest": "e.time",
    "reward": "e.reward",
    "length": "e.tokens",
    "duration": "e.duration_s",
    "staleness": "e.staleness",
}


@dataclass(frozen=True)
class Condition:
    """SQL that holds for the episodes asked for, and its values."""

    sql: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class NewestRecords:
    """Records of episodes, and where `records.readers` goes on behind them."""

    records: tuple[dict[str, Any], ...]
    omitted: int
    cursor: str
    damaged: int


@dataclass(frozen=True)
class Policy:
    """What the index must know of how the run trains."""

    skips_equal_groups: bool
    normalizes: bool

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Policy:
        """From a manifest of any version."""
        recipe = (manifest.get("run") or {}).get("recipe") or {}
        algorithm = recipe.get("algorithm") or {}
        return cls(
            skips_equal_groups=algorithm.get("skip_equal_groups") is True,
            normalizes=algorithm.get("normalize_by_std", True) is not False,
        )


def page(
    run: RunDirectory, connection: sqlite3.Connection, query: EpisodeQuery, policy: Policy
) -> EpisodePage:
    """The page that a query asks for."""
    condition = condition_of(connection, query, policy)
    start = _opened(query)
    total = start.get("total")
    if not (query.text or query.error) and total is None:
        total = count(connection, condition)
    found, last, complete = _search(run, connection, query, condition, start)
    more = len(found) > query.limit or not complete
    shown = found[: query.limit]
    if more and shown and len(found) > query.limit:
        last = _position(shown[-1], query)
    return EpisodePage(
        episodes=tuple(row_of(row, policy) for row in shown),
        cursor=_closed({**last, "total": total}) if more and last is not None else "",
        complete=complete,
        total=total,
    )


def newest_records(
    run: RunDirectory, connection: sqlite3.Connection, stream: str | None, limit: int
) -> NewestRecords:
    """The newest records as they were written, oldest first, without reading the others."""
    parts, values = ["hidden = 0"], []
    if stream is not None:
        parts.append("stream IN (SELECT id FROM words WHERE word IN (?, ?))")
        values += [stream, f"eval:{stream}"]
    where = " AND ".join(parts)
    found = connection.execute(
        f"SELECT segment, offset, length FROM episodes WHERE {where}"
        " ORDER BY attempt DESC, time DESC, id DESC LIMIT ?",
        (*values, limit),
    ).fetchall()
    total = connection.execute(f"SELECT count(*) FROM episodes WHERE {where}", values).fetchone()
    offsets = dict(
        connection.execute("SELECT name, offset FROM segments WHERE stream = 'episodes'")
    )
    damaged = connection.execute(
        "SELECT coalesce(sum(damaged), 0) FROM segments WHERE stream = 'episodes'"
    ).fetchone()
    return NewestRecords(
        records=tuple(read_line(run, connection, "episodes", place) for place in reversed(found)),
        omitted=total[0] - len(found),
        cursor=json.dumps(offsets, separators=(",", ":")),
        damaged=damaged[0],
    )


def count(connection: sqlite3.Connection, condition: Condition) -> int:
    """How many episodes there are."""
    joined = "" if "g." not in condition.sql else " JOIN groups g ON g.id = e.in_group"
    row = connection.execute(
        f"SELECT count(*) FROM episodes e{joined} WHERE {condition.sql}", condition.values
    ).fetchone()
    return int(row[0])


def condition_of(connection: sqlite3.Connection, query: EpisodeQuery, policy: Policy) -> Condition:
    """Everything of a query but `text` and `error`."""
    parts: list[tuple[str, tuple[Any, ...]]] = []
    if not query.hidden:
        parts.append(("e.hidden = 0", ()))
    if query.stream is not None:
        parts.append(_stream(connection, query.stream))
    if query.environment is not None:
        parts.append(("e.environment = ?", (_word(connection, query.environment),)))
    if query.group is not None:
        parts.append(("e.in_group IN (SELECT id FROM groups WHERE key = ?)", (query.group,)))
    if query.task is not None:
        parts.append(("e.in_group IN (SELECT id FROM groups WHERE task = ?)", (query.task,)))
    if query.status:
        marks = ", ".join(str(STATUSES.index(status)) for status in query.status)
        parts.append((f"e.status IN ({marks})", ()))
    if query.judged is not None:
        parts.append((f"e.reward IS {'NOT ' if query.judged else ''}NULL", ()))
    for name, bounds in (
        ("e.step", query.step),
        ("e.reward", query.reward),
        ("e.tokens", query.length),
        ("e.staleness", query.staleness),
    ):
        parts += _within(name, bounds)
    if query.component is not None:
        name = component_column(connection, query.component)
        parts.append((f"{name} IS NOT NULL", ()))
        parts += _within(name, query.component_value)
    if query.discarded is not None:
        parts.append(_discarded(connection, query.discarded, policy))
    sql = " AND ".join(part for part, _ in parts) or "1"
    return Condition(sql, tuple(value for _, values in parts for value in values))


def component_column(connection: sqlite3.Connection, name: str) -> str:
    """SQL for the value of a component of the reward."""
    row = connection.execute("SELECT place FROM components WHERE name = ?", (name,)).fetchone()
    if row is None:
        return "NULL"
    if row[0] < COMPONENT_COLUMNS:
        return f"e.c{row[0]}"
    path = json.dumps(f'$."{name}"').replace("'", "''")[1:-1].replace('\\"', '"')
    return (
        "(SELECT json_extract(components, '" + path + "') FROM episode_texts x WHERE x.id = e.id)"
    )


def row_of(row: Sequence[Any], policy: Policy) -> EpisodeRow:
    """A row of `ROW` as a value."""
    (
        _, key, stream, group, member, task, environment, step, optimizer_step, policy_version,
        attempt, moment, status, reason, reward, components, mean, deviation, _, low, high,
        tokens, prompt_tokens, turns, staleness, mean_logprob, duration_s, retries, _,
        hidden, preview, *_place,
    ) = row  # fmt: skip
    training = stream == TRAIN
    advantage = None
    if training and reward is not None and mean is not None:
        advantage = 0.0 if not deviation or high - low < _EQUAL else reward - mean
        if deviation and policy.normalizes:
            advantage /= deviation + 1e-4
    return EpisodeRow(
        id=key,
        stream=stream,
        group=group,
        member=member,
        task=task,
        environment=environment,
        step=step,
        optimizer_step=optimizer_step,
        policy_version=policy_version,
        attempt=attempt,
        time=moment,
        status=STATUSES[status],
        reason=reason,
        reward=reward,
        components=json.loads(components) if components else {},
        advantage=advantage,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        turns=turns,
        staleness=staleness,
        mean_logprob=mean_logprob,
        duration_s=duration_s,
        retries=retries,
        discarded=_why_discarded(row, policy) if training else "",
        hidden=bool(hidden),
        preview=preview,
    )


def _why_discarded(row: Sequence[Any], policy: Policy) -> str:
    status, reason, reward = STATUSES[row[12]], row[13], row[14]
    judged, low, high, dropped = row[18], row[19], row[20], row[28]
    if dropped:
        return str(reason) or "left out by the engine"
    if status == "infrastructure_failed":
        return f"infrastructure failed: {reason}" if reason else "infrastructure failed"
    if reward is None:
        return f"could not be judged: {reason}" if reason else "could not be judged"
    if policy.skips_equal_groups and judged > 1 and high - low < _EQUAL:
        return f"all {judged} judged episodes of its group got {low:.4g}"
    return ""


def _discarded(
    connection: sqlite3.Connection, wanted: bool, policy: Policy
) -> tuple[str, tuple[Any, ...]]:
    train = _word(connection, TRAIN)
    failed = STATUSES.index("infrastructure_failed")
    equal = ""
    if policy.skips_equal_groups:
        equal = (
            f" OR e.in_group IN (SELECT id FROM groups WHERE judged > 1 AND high - low < {_EQUAL})"
        )
    sql = f"(e.dropped = 1 OR e.status = {failed} OR e.reward IS NULL{equal})"
    if wanted:
        return f"(e.stream = ? AND {sql})", (train,)
    return f"(e.stream <> ? OR NOT {sql})", (train,)


def _stream(connection: sqlite3.Connection, name: str) -> tuple[str, tuple[Any, ...]]:
    if name == "eval":
        return "e.stream <> ?", (_word(connection, TRAIN),)
    return "e.stream = ?", (_word(connection, name),)


def _word(connection: sqlite3.Connection, word: str) -> int:
    row = connection.execute("SELECT id FROM words WHERE word = ?", (word,)).fetchone()
    return -1 if row is None else int(row[0])


def _within(name: str, bounds: Range | None) -> list[tuple[str, tuple[Any, ...]]]:
    if bounds is None:
        return []
    parts: list[tuple[str, tuple[Any, ...]]] = []
    if bounds.low is not None:
        parts.append((f"{name} >= ?", (bounds.low,)))
    if bounds.high is not None:
        parts.append((f"{name} <= ?", (bounds.high,)))
    return parts


def _search(
    run: RunDirectory,
    connection: sqlite3.Connection,
    query: EpisodeQuery,
    condition: Condition,
    start: dict[str, Any],
) -> tuple[list[Sequence[Any]], dict[str, Any] | None, bool]:
    """Rows that match, one more than asked if there are; where it stood; whether to the end."""
    deadline = time.monotonic() + SEARCH_S
    found: list[Sequence[Any]] = []
    last: dict[str, Any] | None = None
    for row in _rows(connection, query, condition, start):
        last = _position(row, query)
        if _matches(run, connection, row, query):
            found.append(row)
            if len(found) > query.limit:
                break
        if (query.text or query.error) and time.monotonic() > deadline:
            return found, last, False
    return found, last, True


def _rows(
    connection: sqlite3.Connection,
    query: EpisodeQuery,
    condition: Condition,
    start: dict[str, Any],
) -> Iterator[Sequence[Any]]:
    """Rows after a position, in order: those with a value first, then those without."""
    name = _ORDER[query.order]
    descending = query.order == "newest" or (query.order != "oldest" and query.descending)
    way, beyond = ("DESC", "<") if descending else ("ASC", ">")
    if "id" not in start or start["at"] is not None:
        after, values = "", condition.values
        if "id" in start:
            after = f" AND ({name}, e.id) {beyond} (?, ?)"
            values = (*values, start["at"], start["id"])
        yield from connection.execute(
            f"{ROW} WHERE {condition.sql} AND {name} IS NOT NULL{after}"
            f" ORDER BY {name} {way}, e.id {way}",
            values,
        )
    if query.order not in ("reward", "staleness"):
        return  # the others always have a value
    after, values = "", condition.values
    if "id" in start and start["at"] is None:
        after, values = f" AND e.id {beyond} ?", (*values, start["id"])
    yield from connection.execute(
        f"{ROW} WHERE {condition.sql} AND {name} IS NULL{after} ORDER BY e.id {way}", values
    )


def _position(row: Sequence[Any], query: EpisodeQuery) -> dict[str, Any]:
    places = {"reward": 14, "length": 21, "duration": 26, "staleness": 24}
    return {"at": row[places.get(query.order, 11)], "id": row[0]}


def _matches(
    run: RunDirectory, connection: sqlite3.Connection, row: Sequence[Any], query: EpisodeQuery
) -> bool:
    if query.error:
        said = [str(row[13])]
        said += [
            str(json.loads(fields).get("message", ""))
            for (fields,) in connection.execute(
                "SELECT fields FROM remarks WHERE episode = ? AND kind <> 'columns'", (row[1],)
            )
        ]
        if not any(query.error.lower() in text.lower() for text in said):
            return False
    if not query.text:
        return True
    record = read_line(run, connection, "episodes", (row[-3], row[-2], row[-1]))
    return any(query.text.lower() in text.lower() for text in texts_of(record["episode"]))


def texts_of(episode: dict[str, Any]) -> Iterator[str]:
    """Everything the conversation of a recorded episode says: texts, reasoning, tool calls."""
    messages = episode.get("messages") or ()
    prompt = episode["task"].get("prompt")
    if isinstance(prompt, str):
        yield prompt
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        else:
            yield from (str(part.get("text", "")) for part in content or ())
        yield str(message.get("reasoning") or "")
        yield from (
            json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls") or ()
        )


def _opened(query: EpisodeQuery) -> dict[str, Any]:
    if not query.cursor:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(query.cursor.encode()))
        return {"at": found["at"], "id": int(found["id"]), "total": found.get("total")}
    except (ValueError, LookupError, TypeError):
        raise RecordsError(
            f"{query.cursor!r:.60} is not a cursor of episodes",
            fix="pass the cursor of the page before, or none",
        ) from None


def _closed(position: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()
