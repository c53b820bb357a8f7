"""Parsed task sets under the cache folder, by a hash of everything they depend on.

A cache is disposable: an entry that cannot be read is parsed and written again, and one that
cannot be written is not missed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from training_gym.data.rows import Source
from training_gym.data.taskset import DataReport, task_line
from training_gym.data.writing import write_whole
from training_gym.spec import errors, home, messages, tasks
from training_gym.spec.datasets import Dataset
from training_gym.spec.tasks import Task

Parsed = tuple[tuple[Task, ...], DataReport]

_AFTER_PARSING = {"path", "sha256", "eval_fraction", "limit", "shuffle"}
"""Settings on which parsing does not depend: the fingerprint covers the path."""


def cached(dataset: Dataset, source: Source, parse: Callable[[], Parsed]) -> Parsed:
    """What `parse` gives, from the cache where it was parsed before."""
    if source.fingerprint is None:
        return parse()
    path = home.cache_directory() / "tasks" / f"{_key(dataset, source.fingerprint)}.jsonl"
    found = _read(path)
    if found is None:
        found = parse()
        _write(path, found)
    return found


def _key(dataset: Dataset, fingerprint: str) -> str:
    value = dataset.model_dump(mode="json", exclude=_AFTER_PARSING)
    text = json.dumps([value, fingerprint, _code_version()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def _code_version() -> str:
    """A hash of the source that turns rows into tasks."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    sources += [Path(str(module.__file__)) for module in (errors, messages, tasks)]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _read(path: Path) -> Parsed | None:
    """The entry, or None where there is none that is whole."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        if header["sha256"] != hashlib.sha256(body).hexdigest():
            return None
        report = DataReport.read(header["report"])
        return tuple(Task.model_validate_json(line) for line in body.splitlines()), report
    except (OSError, ValueError, KeyError, TypeError, errors.SpecError):
        return None


def _write(path: Path, parsed: Parsed) -> None:
    found, report = parsed
    body = "".join(f"{task_line(task)}\n" for task in found).encode()
    header = {"sha256": hashlib.sha256(body).hexdigest(), "report": report.model_dump(mode="json")}
    try:
        write_whole(path, json.dumps(header).encode() + b"\n" + body)
    except OSError:
        # A full disk or a read-only home costs the next start some seconds, nothing else.
        return
