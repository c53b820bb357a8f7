"""Taking in episodes: what they are filtered and sorted by; their text stays in the files."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from training_gym.records.index.decode import number_or_none
from training_gym.records.index.sampled import Sampled, SidecarReader
from training_gym.records.index.schema import COMPONENT_COLUMNS
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.episodes import OutcomeStatus

if TYPE_CHECKING:
    from training_gym.records.index.tailing import Part

STATUSES: tuple[str, ...] = get_args(OutcomeStatus)
PREVIEW = 160
TRAIN = "train"
_COLUMNS = (
    "key, in_group, member, stream, environment, step, batch, optimizer_step, policy_version,"
    " writer, attempt, seq, time, status, reward, tokens, prompt_tokens, turns, staleness,"
    " mean_logprob, duration_s, retries, dropped, segment, offset, length, "
    + ", ".join(f"c{place}" for place in range(COMPONENT_COLUMNS))
)
_INSERT = (
    f"INSERT OR IGNORE INTO episodes ({_COLUMNS})"
    f" VALUES ({', '.join('?' * (26 + COMPONENT_COLUMNS))})"
)


class _Numbers:
    """Numbers that stand for words and components, remembered."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._words: dict[str, int] = dict(connection.execute("SELECT word, id FROM words"))
        self._places: dict[str, int] = dict(
            connection.execute("SELECT name, place FROM components")
        )

    def word(self, word: str) -> int:
        if word not in self._words:
            made = self._connection.execute("INSERT INTO words (word) VALUES (?)", (word,))
            self._words[word] = int(made.lastrowid or 0)
        return self._words[word]

    def components(self, values: dict[str, Any]) -> list[float | None]:
        """The values that have a column, each in its place."""
        row: list[float | None] = [None] * COMPONENT_COLUMNS
        for name, value in values.items():
            place = self._places.get(name)
            if place is None:
                place = self._places[name] = len(self._places)
                self._connection.execute("INSERT INTO components VALUES (?, ?)", (place, name))
            if place < COMPONENT_COLUMNS:
                row[place] = number_or_none(value)
        return row


@dataclass(frozen=True)
class _Group:
    key: str
    stream: int
    task: str
    environment: int
    step: int | None


def take_in(run: RunDirectory, connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    """Add episode records; one that is found again counts once."""
    numbers, groups = _Numbers(connection), _Groups(connection)
    with SidecarReader() as sidecars:
        for part in parts:
            for record, place in zip(part.records, part.places, strict=True):
                try:
                    sampled = sidecars.sampled(part.segment.path, record)
                    _insert(connection, numbers, groups, record, sampled, (part.segment_id, *place))
                except (KeyError, TypeError, AttributeError, ValueError):
                    # Whole JSON, but no episode of ours: counted as any damaged line.
                    connection.execute(
                        "UPDATE segments SET damaged = damaged + 1, records = records - 1"
                        " WHERE id = ?",
                        (part.segment_id,),
                    )
    sum_up_groups(connection, groups.touched)


class _Groups:
    """Rows of `groups`, and which of them got new members."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[_Group, int] = {}
        self.touched: set[int] = set()

    def find(self, group: _Group) -> int:
        identity = self._known.get(group)
        if identity is None:
            row = self._connection.execute(
                "SELECT id FROM groups WHERE key = ? AND task = ? AND stream = ?",
                (group.key, group.task, group.stream),
            ).fetchone()
            identity = self._known[group] = int(row[0]) if row else self._make(group)
        self.touched.add(identity)
        return identity

    def _make(self, group: _Group) -> int:
        made = self._connection.execute(
            "INSERT INTO groups (key, stream, task, environment, step) VALUES (?, ?, ?, ?, ?)",
            (group.key, group.stream, group.task, group.environment, group.step),
        )
        return int(made.lastrowid or 0)


def sum_up_groups(connection: sqlite3.Connection, groups: Collection[int]) -> None:
    """Bring size and rewards of these groups up to date; hidden members do not count."""
    ordered = sorted(groups)
    for start in range(0, len(ordered), 500):
        some = ordered[start : start + 500]
        marks = ", ".join("?" * len(some))
        found: dict[int, list[float | None]] = {group: [] for group in some}
        for group, reward in connection.execute(
            f"SELECT in_group, reward FROM episodes WHERE in_group IN ({marks}) AND hidden = 0",
            some,
        ):
            found[group].append(reward)
        connection.executemany(
            "UPDATE groups SET size = ?, judged = ?, low = ?, high = ?, mean = ?, deviation = ?"
            " WHERE id = ?",
            [(*_summary(rewards), group) for group, rewards in found.items()],
        )


def _summary(
    rewards: list[float | None],
) -> tuple[int, int, float | None, float | None, float | None, float | None]:
    judged = [reward for reward in rewards if reward is not None]
    count = len(judged)
    if not count:
        return len(rewards), 0, None, None, None, None
    mean = math.fsum(judged) / count
    deviation = None
    if count > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in judged) / (count - 1))
    return len(rewards), count, min(judged), max(judged), mean, deviation


def _insert(
    connection: sqlite3.Connection,
    numbers: _Numbers,
    groups: _Groups,
    record: dict[str, Any],
    sampled: Sampled,
    place: tuple[int, int, int],
) -> None:
    episode = record["episode"]
    task, outcome, score = episode["task"], episode["outcome"], episode.get("score")
    stream = str(episode.get("stream", TRAIN))
    metadata = task.get("metadata") or {}
    environment = numbers.word(str(metadata.get("environment") or metadata.get("env") or ""))
    components: dict[str, Any] = (score or {}).get("components") or {}
    step = (
        record["batch"] + 1 if stream == TRAIN and record["batch"] is not None else record["batch"]
    )
    word = numbers.word(stream)
    group = groups.find(_Group(str(episode["group"]), word, str(task["id"]), environment, step))
    reward = None if score is None else number_or_none(score["value"])
    status = str(outcome.get("status", "finished"))
    messages = episode.get("messages") or ()
    made = connection.execute(
        _INSERT,
        (
            str(episode["id"]),
            group,
            int(episode.get("member", 0)),
            word,
            environment,
            step,
            record["batch"],
            record["optimizer_step"],
            record["policy_version"],
            numbers.word(str(record["writer"])),
            record["attempt"],
            record["seq"],
            record["time"],
            STATUSES.index(status),
            reward if reward is None or reward == reward else None,
            sampled.tokens,
            sampled.prompt_tokens,
            _turns(messages, task),
            record.get("staleness", sampled.staleness),
            sampled.mean_logprob,
            float(episode.get("duration_s", 0.0)),
            int(episode.get("retries", 0)),
            int(bool(record.get("discarded"))),
            *place,
            *numbers.components(components),
        ),
    )
    if made.rowcount > 0:
        connection.execute(
            "INSERT INTO episode_texts VALUES (?, ?, ?, ?)",
            (
                made.lastrowid,
                str(record.get("discarded") or outcome.get("reason", "")),
                json.dumps(components) if components else "",
                _preview(messages),
            ),
        )


def _turns(messages: Iterable[dict[str, Any]], task: dict[str, Any]) -> int:
    """Answers of the policy; those shown in the prompt are not its own."""
    prompt = task.get("prompt")
    shown = prompt if isinstance(prompt, list) else ()
    given: int = sum(message.get("role") == "assistant" for message in shown)
    said: int = sum(message.get("role") == "assistant" for message in messages)
    return said - given


def _preview(messages: Sequence[dict[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return text_of(message)[:PREVIEW].encode(errors="replace").decode()
    return ""


def text_of(message: dict[str, Any]) -> str:
    """The text of a recorded message, its parts joined."""
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", f"[{part.get('type')}]")) for part in content or ())
