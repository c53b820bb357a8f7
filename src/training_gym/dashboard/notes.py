"""Notes and tags as records of the run's own `annotations` stream, so that they travel with it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.settings import Settings


class NewNote(Settings):
    """What somebody has to say."""

    text: str = Field(min_length=1, max_length=20_000)


class TagChange(Settings):
    """Tags to add and to remove."""

    add: tuple[str, ...] = Field((), max_length=20)
    remove: tuple[str, ...] = Field((), max_length=20)


class Acknowledgement(Settings):
    """Alerts that somebody has seen."""

    alerts: tuple[str, ...] = Field(min_length=1, max_length=200)
    note: str = Field("", max_length=2000)
    withdraw: bool = False
    """They are open again."""


def add_note(run: RunDirectory, text: str, by: str) -> str:
    """Record a note and return its id."""
    identity = uuid.uuid4().hex[:12]
    _annotate(run, [{"kind": "note", "id": identity, "text": text, "by": by}])
    return identity


def change_tags(run: RunDirectory, change: TagChange, by: str) -> None:
    """Record tags that were added and removed; empty ones are none."""
    _annotate(
        run,
        [
            *({"kind": "tag_added", "tag": tag, "by": by} for tag in _cleaned(change.add)),
            *({"kind": "tag_removed", "tag": tag, "by": by} for tag in change.remove),
        ],
    )


def _cleaned(tags: Sequence[str]) -> list[str]:
    return [tag for tag in (" ".join(tag.split())[:64] for tag in tags) if tag]


def _annotate(run: RunDirectory, records: Sequence[Mapping[str, Any]]) -> None:
    """Write as a writer of our own: segments have one writer each."""
    attempt = max(run.attempts(), default=1)
    with Recorder(run, writer=f"viewer.{uuid.uuid4().hex[:8]}", attempt=attempt) as recorder:
        for record in records:
            recorder.record("annotations", record)
