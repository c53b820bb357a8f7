"""Taking in episodes: what they are filtered and sorted by; their text stays in the files."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from training_gym.records.index.decode import compact, number_or_none
from training_gym.records.index.episode_heads import TRAIN, EpisodeHead, head_of
from training_gym.records.index.sampled import SidecarReader
from training_gym.records.index.schema import COMPONENT_COLUMNS
from training_gym.records.means import deviation_of, mean_of
from training_gym.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from training_gym.records.index.tailing import Part

_COLUMNS = (
    "key, in_group, member, stream, environment, step, batch, optimizer_step, policy_version, "
    "writer, attempt, seq, time, status, reward, tokens, prompt_tokens, turns, staleness, "
    "mean_logprob, duration_s, retries, dropped, segment, offset, length, "
    + ", ".join(f"c{place}" for place in range(COMPONENT_COLUMNS))
)
_INSERT = (
    f"INSERT OR IGNORE INTO episodes ({_COLUMNS})"
    f" VALUES ({', '.join('?' * (26 + COMPONENT_COLUMNS))})"
)
_INSERT_TEXT = "INSERT INTO episode_texts VALUES (?, ?, ?, ?)"
_WRITER = _COLUMNS.split(", ").index("writer")
"""Place of the writer in a row; attempt and sequence number follow it."""


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
                row[place] = value if type(value) is float else number_or_none(value)
        return row


class _Group(NamedTuple):
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
            heads, damaged = _heads(part, sidecars)
            rows = [_row(numbers, groups, head, (part.segment_id, *place)) for head, place in heads]
            _insert(connection, rows, [head for head, _ in heads])
            if damaged:
                connection.execute(
                    "UPDATE segments SET damaged = damaged + ?, records = records - ? WHERE id = ?",
                    (damaged, damaged, part.segment_id),
                )
    sum_up_groups(connection, groups.touched)


def _heads(
    part: Part, sidecars: SidecarReader
) -> tuple[list[tuple[EpisodeHead, tuple[int, int]]], int]:
    """Heads and places of a part's lines; how many were whole JSON, but no episode of ours."""
    heads: list[tuple[EpisodeHead, tuple[int, int]]] = []
    for record, place in zip(part.records, part.places, strict=True):
        if isinstance(record, EpisodeHead):
            heads.append((record, place))
            continue
        try:
            head = head_of(record, sidecars.sampled(part.segment.path, record))
        except (KeyError, TypeError, AttributeError, ValueError):
            continue
        heads.append((head, place))
    return heads, len(part.records) - len(heads)


def _insert(
    connection: sqlite3.Connection, rows: list[tuple[Any, ...]], heads: list[EpisodeHead]
) -> None:
    """Add rows all at once where none of them can be there already."""
    if not rows:
        return
    if _are_new(connection, rows):
        first = 1 + connection.execute("SELECT coalesce(max(id), 0) FROM episodes").fetchone()[0]
        connection.executemany(_INSERT, rows)
        texts = [(number, *_texts(head)) for number, head in enumerate(heads, first)]
        connection.executemany(_INSERT_TEXT, texts)
        return
    for row, head in zip(rows, heads, strict=True):
        made = connection.execute(_INSERT, row)
        if made.rowcount > 0:
            connection.execute(_INSERT_TEXT, (made.lastrowid, *_texts(head)))


def _are_new(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> bool:
    """Whether these come after all that is known of their one writer, and after each other."""
    lanes = {row[_WRITER : _WRITER + 2] for row in rows}
    if len(lanes) != 1:
        return False
    known = connection.execute(
        "SELECT coalesce(max(seq), -1) FROM episodes WHERE writer = ? AND attempt = ?", lanes.pop()
    ).fetchone()[0]
    numbers = [known, *(row[_WRITER + 2] for row in rows)]
    return all(before < after for before, after in pairwise(numbers))


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
    deviation = deviation_of(judged) if count > 1 else None
    return len(rewards), count, min(judged), max(judged), mean_of(judged), deviation


def _row(
    numbers: _Numbers, groups: _Groups, head: EpisodeHead, place: tuple[int, int, int]
) -> tuple[Any, ...]:
    """An episode's row, as `_COLUMNS` names it."""
    batch = head.batch
    step = batch + 1 if head.stream == TRAIN and batch is not None else batch
    environment, stream = numbers.word(head.environment), numbers.word(head.stream)
    return (
        head.id,
        groups.find(_Group(head.group, stream, head.task, environment, step)),
        head.member,
        stream,
        environment,
        step,
        batch,
        head.optimizer_step,
        head.policy_version,
        numbers.word(head.writer),
        head.attempt,
        head.seq,
        head.time,
        head.status,
        head.reward,
        head.tokens,
        head.prompt_tokens,
        head.turns,
        head.staleness,
        head.mean_logprob,
        head.duration_s,
        head.retries,
        int(head.discarded),
        *place,
        *numbers.components(head.components),
    )


def _texts(head: EpisodeHead) -> tuple[str, str, str]:
    components = compact(head.components) if head.components else ""
    return head.reason, components, head.preview
