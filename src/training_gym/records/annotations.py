"""Notes and tags on a run: records of its own `annotations`, which anybody may add, at any time.

Each call writes a segment of its own, so that any number of people and viewers can write at once,
also long after the run has ended. Nothing is ever overwritten: a removal is a record too.
"""

from __future__ import annotations

import getpass
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError, did_you_mean

LONGEST_NOTE = 20_000
"""Characters."""
_TAG = re.compile(r"[^\s,][^\n,]{0,63}")


def add_note(run: RunDirectory, text: str, *, by: str = "") -> str:
    """Write a note on the run; its id. Raises `RecordsError` for an empty or enormous one."""
    if not text.strip() or len(text) > LONGEST_NOTE:
        raise RecordsError(
            f"a note of {len(text)} characters", fix=f"write 1 to {LONGEST_NOTE} characters"
        )
    identity = uuid.uuid4().hex[:12]
    _write(run, {"kind": "note", "id": identity, "text": text}, by)
    return identity


def remove_note(run: RunDirectory, note: str, *, by: str = "") -> None:
    """Take a note back; raises `RecordsError` where there is none of this id."""
    known = {
        str(record.get("id"))
        for record in read_stream(run, "annotations")
        if record.get("kind") == "note"
    }
    if note not in known:
        raise RecordsError(
            f"run {run.run_id} has no note {note!r:.60}",
            fix=f"see training-gym runs note {run.run_id}",
        )
    _write(run, {"kind": "note_removed", "id": note}, by)


def add_tag(run: RunDirectory, tag: str, *, by: str = "") -> None:
    """Tag the run; raises `RecordsError` for what is no tag."""
    _write(run, {"kind": "tag_added", "tag": _tag(tag)}, by)


def remove_tag(run: RunDirectory, tag: str, *, by: str = "") -> None:
    """Take a tag off the run, also one it was launched with; raises `RecordsError` for no tag."""
    require_tags(run, (tag,))
    _write(run, {"kind": "tag_removed", "tag": _tag(tag)}, by)


def require_tags(run: RunDirectory, tags: Iterable[str]) -> None:
    """Raise `RecordsError` for a tag that the run does not have."""
    from training_gym.records.index.record_reading import tags_of

    known = tags_of({"tags": run.manifest.tags}, read_stream(run, "annotations"))
    for tag in tags:
        if _tag(tag) not in known:
            raise RecordsError(
                f"run {run.run_id} has no tag {tag!r}",
                fix=did_you_mean(tag, known) if known else "it has none to take off",
            )


def _tag(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise RecordsError(
            f"{tag!r:.60} is no tag", fix="use 1 to 64 characters, no comma and no line break"
        )
    return tag


def _write(run: RunDirectory, fields: Mapping[str, Any], by: str) -> None:
    attempt = max(run.attempts(), default=1)
    with Recorder(run, writer=f"viewer.{uuid.uuid4().hex[:8]}", attempt=attempt) as recorder:
        recorder.record("annotations", {**fields, "by": by or _user()})


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
