"""The text of each token, from the tokenizer that lies with the run's model or checkpoint.

The vocabulary is read from `tokenizer.json` itself, so no tokenizer needs to be installed. Without
that file tokens are shown by number. Nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from training_gym.records.index import EpisodeDetail
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import GymError
from training_gym.spec.home import models_directory

_FILE = "tokenizer.json"


def with_text(detail: EpisodeDetail, run: RunDirectory) -> EpisodeDetail:
    """The episode with its tokens' texts, as far as they can be known here."""
    if not detail.trajectories or all(t.text is not None for t in detail.trajectories):
        return detail
    path = _tokenizer_file(run)
    pieces = None if path is None else _pieces(path, path.stat().st_mtime_ns)
    if pieces is None:
        return detail
    told = tuple(
        trajectory
        if trajectory.text is not None
        else trajectory.model_copy(update={"text": texts(trajectory.ids, pieces)})
        for trajectory in detail.trajectories
    )
    return detail.model_copy(update={"trajectories": told})


def texts(ids: Sequence[int], pieces: Sequence[bytes]) -> tuple[str, ...]:
    r"""One text for each id; a character of several tokens stands at the last of them.

    >>> texts([0, 1], [b"\xc3", b"\xa4"])
    ('', 'ä')
    """
    found, waiting = [], b""
    for identity in ids:
        waiting += pieces[identity] if 0 <= identity < len(pieces) else b""
        try:
            found.append(waiting.decode())
            waiting = b""
        except UnicodeDecodeError as error:
            if len(waiting) - error.start >= 4 or error.reason != "unexpected end of data":
                found.append(waiting.decode(errors="replace"))
                waiting = b""
            else:
                found.append("")
    if waiting and found:
        found[-1] = waiting.decode(errors="replace")
    return tuple(found)


def _tokenizer_file(run: RunDirectory) -> Path | None:
    for folder in _folders(run):
        if (folder / _FILE).is_file():
            return folder / _FILE
    return None


def _folders(run: RunDirectory) -> Iterator[Path]:
    """The run's newest checkpoint, then where its model may lie: a folder, or one of ours."""
    if run.checkpoints.is_dir():
        saved = [entry for entry in run.checkpoints.iterdir() if entry.name.isdecimal()]
        yield from sorted(saved, key=lambda entry: -int(entry.name))
    try:
        model = str(run.manifest.run.get("model", ""))
    except GymError:
        return
    if Path(model).is_absolute():
        yield Path(model)
    elif model and ".." not in model:
        yield models_directory() / model
        yield from sorted(models_directory().glob(f"{model.replace('/', '--')}*"))


@lru_cache(maxsize=4)
def _pieces(path: Path, _changed: int) -> tuple[bytes, ...] | None:
    """What each id stands for, as bytes; None where the file is not understood."""
    try:
        document = json.loads(path.read_bytes())
        by_id = dict(_vocabulary(document))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    decode = _decoder(document)
    special = {entry["id"]: entry["content"] for entry in document.get("added_tokens", [])}
    size = max([*by_id, *special], default=-1) + 1
    return tuple(
        special[number].encode() if number in special else decode(by_id.get(number, ""))
        for number in range(size)
    )


def _vocabulary(document: dict[str, Any]) -> Iterator[tuple[int, str]]:
    vocabulary = document["model"]["vocab"]
    if isinstance(vocabulary, dict):
        yield from ((number, piece) for piece, number in vocabulary.items())
    else:  # a unigram model's list of piece and score
        yield from enumerate(str(piece) for piece, _ in vocabulary)


def _decoder(document: dict[str, Any]) -> Any:
    """How a vocabulary writes bytes: GPT-2's stand-ins, or SentencePiece's `▁` and `<0x0A>`."""
    parts = json.dumps([document.get("decoder"), document.get("pre_tokenizer")])
    if "ByteLevel" in parts:
        stands_for = _byte_level()
        return lambda piece: b"".join(stands_for.get(char, char.encode()) for char in piece)
    return _sentence_piece


def _sentence_piece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace("▁", " ").encode(errors="replace")


@lru_cache(maxsize=1)
def _byte_level() -> dict[str, bytes]:
    """Printable Latin-1 stands for itself, other bytes for code points from 256 on, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    codes = {byte: chr(byte) for byte in plain}
    codes |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return {char: bytes([byte]) for byte, char in codes.items()}
