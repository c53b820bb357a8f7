"""From what a user calls a model to the folder that holds it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pydantic import JsonValue

from training_gym.models.gguf_header import read_header
from training_gym.models.hub import looks_like_hub_id, snapshot
from training_gym.models.known_models import CATALOGUE, all_names, find
from training_gym.models.pull import pull
from training_gym.models.store import file_sha256, store
from training_gym.spec.errors import ModelError, did_you_mean

__all__ = ["CATALOGUE", "find", "pull", "resolve"]

CONFIG_FILES = ("config.json", "adapter_config.json")
"""One of these makes a folder a model."""


def resolve(name: str, *, say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of a model in Hugging Face layout, fetched or converted where needed.

    Args:
        name: catalogue name or alias, local folder, GGUF file, or Hub id.
        say: receives one line per stage of a fetch.

    Raises:
        ModelError: nothing answers to the name, or what does is unusable.
    """
    path = Path(name).expanduser()
    if _is_model_folder(path):
        return path.resolve()
    if path.suffix.lower() == ".gguf" and (path.is_file() or not looks_like_hub_id(name)):
        return _from_gguf(path, say)
    if find(name) is not None:
        return pull(name, say=say)
    if path.is_dir():
        raise ModelError(
            f"the folder {name} holds no model: it has no config.json",
            fix="give the folder that holds config.json and the safetensors files",
        )
    if looks_like_hub_id(name):
        return snapshot(name)
    if name.startswith(("/", ".", "~")):
        fix = "check the path: a model is a folder with config.json, or a .gguf file"
    else:
        fix = f"write Hub ids as owner/model; {did_you_mean(name, all_names())}"
    raise ModelError(f"no model, folder or file is called {name!r}", fix=fix)


def _is_model_folder(path: Path) -> bool:
    return any((path / file).is_file() for file in CONFIG_FILES)


def _from_gguf(file: Path, say: Callable[[str], None]) -> Path:
    """The converted folder of a GGUF file, cached by what is in the file."""
    read_header(file)
    digest = file_sha256(file)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem)

    def convert(directory: Path) -> dict[str, JsonValue]:
        from training_gym.models.conversion import convert

        say(f"converting {file.name} to safetensors, once")
        convert(file, directory)
        origin: JsonValue = {"kind": "gguf", "file": str(file.resolve()), "sha256": digest}
        return {"name": file.stem, "licence": None, "terms": None, "origin": origin}

    return store(f"{stem}-{digest[:12]}", convert)
