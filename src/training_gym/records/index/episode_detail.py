"""One episode with its tokens, and groups side by side."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from training_gym.records.index.episode_heads import text_of
from training_gym.records.index.episode_rows import ROW, Policy, row_of
from training_gym.records.index.episode_values import (
    EpisodeDetail,
    EpisodeRow,
    GroupRow,
    GroupView,
    TokenColumns,
)
from training_gym.records.index.places import Place, read_line, segment_name
from training_gym.records.index.sampled import SidecarReader
from training_gym.records.means import mean_of
from training_gym.records.run_directory import RunDirectory
from training_gym.records.tokens import load_trajectory, unpack
from training_gym.records.vocabulary import read_vocabulary
from training_gym.spec.episodes import SAMPLED, Trajectory
from training_gym.spec.errors import RecordsError

_EQUAL = 1e-6
MOST_TITLES = 256
"""Groups of a step whose task is read for a title; of more, the others are known by their id."""
LONGEST_TITLE = 200
TRAINER_LOGPROBS = "trainer_logprobs"
MISMATCH = "mismatch"


def detail(
    run: RunDirectory,
    connection: sqlite3.Connection,
    episode_id: str,
    policy: Policy,
    *,
    tokens: bool,
) -> EpisodeDetail:
    """The newest episode of this id; one that shows before one that a resume made void."""
    found = connection.execute(
        f"{ROW} WHERE e.key = ? ORDER BY e.hidden, e.attempt DESC, e.time DESC LIMIT 1",
        (episode_id,),
    ).fetchone()
    if found is None:
        raise RecordsError(
            f"run {run.run_id} has no episode {episode_id!r:.80}",
            fix=f"list them: training-gym episodes {run.run_id}",
        )
    record = read_line(run, connection, "episodes", tuple(found[-3:]))
    trajectories: tuple[TokenColumns, ...] = ()
    problem = ""
    if tokens:
        try:
            trajectories = _trajectories(run, connection, found, record)
        except (RecordsError, OSError, struct.error, LookupError, TypeError) as error:
            problem = str(error).splitlines()[0]
    siblings = connection.execute(
        "SELECT e.key FROM episodes e WHERE e.in_group ="
        " (SELECT in_group FROM episodes WHERE id = ?) AND e.hidden = ? ORDER BY e.member, e.id",
        (found[0], found[29]),
    )
    return EpisodeDetail(
        row=row_of(found, policy),
        episode={key: value for key, value in record["episode"].items() if key != "trajectories"},
        trajectories=trajectories,
        problem=problem,
        siblings=tuple(key for (key,) in siblings),
        events=_events(connection, episode_id),
    )


def groups(
    run: RunDirectory, connection: sqlite3.Connection, step: int, stream: str, policy: Policy
) -> tuple[GroupRow, ...]:
    """Groups of one step, the best first; those without a judged episode last."""
    by_group: dict[tuple[str, str], list[EpisodeRow]] = {}
    places: dict[tuple[str, str], Place] = {}
    for found in connection.execute(
        f"{ROW} WHERE e.step = ? AND st.word = ? AND e.hidden = 0 ORDER BY e.member, e.id",
        (step, stream),
    ):
        row = row_of(found, policy)
        key = row.group, row.task
        by_group.setdefault(key, []).append(row)
        places.setdefault(key, tuple(found[-3:]))
    made = []
    for number, (key, members) in enumerate(by_group.items()):
        asked = ""
        if number < MOST_TITLES:
            task = read_line(run, connection, "episodes", places[key])["episode"]["task"]
            asked = asked_of(task)
        made.append(group_row(members, asked))
    return tuple(sorted(made, key=lambda g: (g.mean is None, -(g.mean or 0.0), g.group)))


def group(run: RunDirectory, connection: sqlite3.Connection, key: str, policy: Policy) -> GroupView:
    """One group, side by side."""
    ids = [
        str(found)
        for (found,) in connection.execute(
            "SELECT e.key FROM episodes e JOIN groups g ON g.id = e.in_group"
            " WHERE g.key = ? AND e.hidden = 0 ORDER BY e.member, e.id",
            (key,),
        )
    ]
    if not ids:
        raise RecordsError(
            f"run {run.run_id} has no group {key!r:.80}",
            fix=f"list its episodes: training-gym episodes {run.run_id}",
        )
    members = [
        detail(run, connection, episode, policy, tokens=False) for episode in dict.fromkeys(ids)
    ]
    asked = asked_of(members[0].episode.get("task"))
    return GroupView(row=group_row([m.row for m in members], asked), episodes=tuple(members))


def asked_of(task: Any) -> str:
    """What a recorded task asks: the last that its prompt's user says, or the text to complete."""
    prompt = task.get("prompt") if isinstance(task, dict) else None
    if isinstance(prompt, str):
        return " ".join(prompt.split())[:LONGEST_TITLE]
    messages: list[Any] = prompt if isinstance(prompt, list) else []
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return " ".join(text_of(message).split())[:LONGEST_TITLE]
    return ""


def group_row(members: Sequence[EpisodeRow], asked: str) -> GroupRow:
    """What the members of a group amount to."""
    first = members[0]
    rewards = [row.reward for row in members if row.reward is not None]
    return GroupRow(
        group=first.group,
        task=first.task,
        asked=asked,
        environment=first.environment,
        stream=first.stream,
        step=first.step,
        size=len(members),
        judged=len(rewards),
        mean=mean_of(rewards) if rewards else None,
        low=min(rewards, default=None),
        high=max(rewards, default=None),
        equal=len(rewards) > 1 and max(rewards) - min(rewards) < _EQUAL,
        rewards=tuple(row.reward for row in members),
        ids=tuple(row.id for row in members),
    )


def _trajectories(
    run: RunDirectory,
    connection: sqlite3.Connection,
    row: Sequence[Any],
    record: dict[str, Any],
) -> tuple[TokenColumns, ...]:
    stored = record.get("trajectories") or ()
    segment = run.streams / "episodes" / segment_name(connection, row[-3])
    with SidecarReader() as sidecars:
        read = sidecars.read(segment)
        found = [load_trajectory(one, read) for one in stored]
        more = _display_columns(run, connection, row[1], sidecars, record["attempt"])
    return tuple(
        _columns(run, trajectory, more.get(number, {})) for number, trajectory in enumerate(found)
    )


def _columns(
    run: RunDirectory, trajectory: Trajectory, more: dict[str, tuple[float, ...]]
) -> TokenColumns:
    length = len(trajectory.token_ids)
    columns = {name: _padded(values, length) for name, values in more.items()}
    if MISMATCH in columns:
        columns[TRAINER_LOGPROBS] = tuple(
            sampled + apart
            for sampled, apart in zip(trajectory.logprobs, columns[MISMATCH], strict=True)
        )
    elif TRAINER_LOGPROBS in columns:
        columns[MISMATCH] = tuple(
            trained - sampled if flag & SAMPLED else math.nan
            for trained, sampled, flag in zip(
                columns[TRAINER_LOGPROBS], trajectory.logprobs, trajectory.flags, strict=True
            )
        )
    return TokenColumns(
        agent=trajectory.agent,
        prompt_length=trajectory.prompt_length,
        ids=trajectory.token_ids,
        text=_texts(run, trajectory.token_ids),
        flags=trajectory.flags,
        trained=trajectory.loss_mask,
        versions=trajectory.versions,
        logprobs=trajectory.logprobs,
        columns=columns,
    )


@lru_cache(maxsize=4)
def _vocabulary(path: Path, written_at: int) -> list[str] | None:
    """Remembered for as long as the file stays as it is."""
    return read_vocabulary(path)


def _texts(run: RunDirectory, ids: Sequence[int]) -> tuple[str, ...] | None:
    path = run.vocabulary_path
    known = _vocabulary(path, path.stat().st_mtime_ns) if path.exists() else None
    if known is None:
        return None
    return tuple(known[token] if token < len(known) else "\ufffd" for token in ids)


def _display_columns(
    run: RunDirectory,
    connection: sqlite3.Connection,
    episode: str,
    sidecars: SidecarReader,
    attempt: int,
) -> dict[int, dict[str, tuple[float, ...]]]:
    """Columns that became known after the episode was recorded, by trajectory.

    Values lie behind `start` tokens that they say nothing of.
    """
    found: dict[int, dict[str, tuple[float, ...]]] = {}
    for place in connection.execute(
        "SELECT segment, offset, length FROM display_columns WHERE episode = ?"
        " ORDER BY segment, offset",
        (episode,),
    ).fetchall():
        name = segment_name(connection, place[0])
        if f"-{attempt}-" not in name:
            continue  # of the same episode in another attempt
        fields = read_line(run, connection, "tokens", place)
        block = unpack(fields["columns"], sidecars.read(run.streams / "tokens" / name))
        before = (math.nan,) * int(fields.get("start", 0))
        columns = found.setdefault(int(fields.get("trajectory", 0)), {})
        columns |= {name: before + values for name, values in block.items()}
    return found


def _padded(values: tuple[float, ...], length: int) -> tuple[float, ...]:
    return (values + (math.nan,) * (length - len(values)))[:length]


def _events(connection: sqlite3.Connection, episode: str) -> tuple[dict[str, Any], ...]:
    return tuple(
        {**json.loads(fields), "kind": kind}
        for kind, fields in connection.execute(
            "SELECT kind, fields FROM remarks WHERE episode = ? ORDER BY id",
            (episode,),
        )
    )
