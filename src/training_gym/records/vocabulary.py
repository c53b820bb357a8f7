"""The text of each token id of a run: `vocabulary.json`, so that views need no tokenizer.

A token's text is what it decodes to alone. Bytes that are no text by themselves, parts of a longer
character, are shown as the replacement character.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training_gym.records.documents import create_document, read_document, write_document
from training_gym.records.run_directory import (
    SCHEMA_VERSION,
    RunDirectory,
    require_known_schema,
)


def write_vocabulary(run: RunDirectory, texts: Sequence[str], *, replace: bool = False) -> None:
    """Keep the text of every id, in order; what is there already stays unless told to `replace`."""
    document = {"schema_version": SCHEMA_VERSION, "texts": list(texts)}
    if replace:
        write_document(run.vocabulary_path, document)
    else:
        create_document(run.vocabulary_path, document)


def read_vocabulary(path: Path) -> list[str] | None:
    """The texts by id; None: the run recorded none. Raises `RecordsError` for a damaged file."""
    if not path.exists():
        return None
    document = read_document(path)
    require_known_schema(document, path)
    return [str(text).encode(errors="replace").decode() for text in document.get("texts", ())]
