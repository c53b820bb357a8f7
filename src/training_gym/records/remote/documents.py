"""The whole documents that travel beside the records: what a run is, and how its attempts went.

Whoever holds the collector's key may register a run, which makes its write token; whoever holds
that token sends the rest. Checkpoints and the user's source stay where the run is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from training_gym.records.documents import read_document, write_document
from training_gym.records.remote.wire import BODY_BYTES, too_large
from training_gym.records.run_directory import Manifest, RunDirectory, require_known_schema
from training_gym.spec.errors import RecordsError

_NAME = re.compile(
    r"(plan|environment|vocabulary|result)\.json"
    r"|attempts/[1-9][0-9]{0,5}/(intent|ref|runner|summary|error|exit)\.json"
)


def travelling(run: RunDirectory) -> Iterator[str]:
    """Names of the documents that the run has now; the result, which ends it, last."""
    for name in ("plan.json", "environment.json", "vocabulary.json"):
        if (run.path / name).exists():
            yield name
    for number in run.attempts():
        for path in sorted(run.attempt(number).glob("*.json")):
            name = path.relative_to(run.path).as_posix()
            if _NAME.fullmatch(name):
                yield name
    if run.result_path.exists():
        yield "result.json"


def take(run: RunDirectory, name: str, body: bytes) -> None:
    """Keep a document that was sent; raises `RecordsError` for what does not travel."""
    if not _NAME.fullmatch(name):
        raise RecordsError(
            f"{name!r:.80} is no document that travels", fix="see docs/records.md, over HTTP"
        )
    write_document(run.path / name, _parsed(body))


def register(run: RunDirectory, body: bytes) -> None:
    """Make the run that a manifest speaks of, unless it is there already.

    Raises `RecordsError` for what is no manifest of this run, and where another run has its id.
    """
    document = _parsed(body)
    require_known_schema(document, run.manifest_path)
    if not run.manifest_path.exists():
        RunDirectory.create(run.path, Manifest.read(document))
    elif read_document(run.manifest_path) != document:
        raise RecordsError(
            f"there is another run {run.run_id!r} here", fix="give the run another id"
        )


def _parsed(body: bytes) -> dict[str, Any]:
    if len(body) > BODY_BYTES:
        raise too_large(len(body), BODY_BYTES)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"the document is no JSON: {error}", fix="send it unchanged") from None
    if not isinstance(document, dict):
        raise RecordsError("the document is no object", fix="send it unchanged")
    return document
