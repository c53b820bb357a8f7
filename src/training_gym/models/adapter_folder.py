"""Folders of adapters in `peft`'s layout, handled without torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from training_gym.models.base_weights import ADAPTER_WEIGHTS
from training_gym.models.store import storage_errors
from training_gym.spec.errors import ModelError

ADAPTER_CONFIG = "adapter_config.json"

CARRIED_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
"""What a model folder holds beside weights and configuration; copied byte for byte."""


def carry_files(source: Path, directory: Path) -> None:
    """Copy what a model folder holds beside weights and configuration, as far as it is there."""
    for name in CARRIED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, directory / name)


def require_adapter(folder: Path | str) -> Path:
    """The folder, if it holds an adapter; raises `ModelError`."""
    folder = Path(folder)
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if not (folder / name).is_file():
            raise ModelError(
                f"{folder} holds no adapter: it has no {name}",
                fix="name an adapter's folder, such as a checkpoint of a run with adapter=Lora(…)",
            )
    return folder


def require_new(directory: Path | str) -> Path:
    """The folder, made now; raises `ModelError` where something lies in it already."""
    directory = Path(directory)
    if directory.is_dir() and not any(directory.iterdir()):
        return directory
    with storage_errors(directory):
        if directory.exists():
            raise ModelError(f"{directory} is there already", fix="name a new folder")
        directory.mkdir(parents=True)
    return directory


def export_adapter(folder: Path | str, directory: Path | str, *, base: str | None = None) -> None:
    """Copy an adapter to a folder of its own: weights, configuration, tokenizer, template.

    Args:
        folder: an adapter's folder, such as a checkpoint; what a resume needs stays behind.
        directory: where to write; it must be new or empty.
        base: what the copy shall call its base model, a Hub id say; None: what it is called now.

    Raises:
        ModelError: the folder holds no adapter, or the target is not empty.
    """
    folder, directory = require_adapter(folder), require_new(directory)
    config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    if base is not None:
        config["base_model_name_or_path"] = base
    with storage_errors(directory):
        shutil.copyfile(folder / ADAPTER_WEIGHTS, directory / ADAPTER_WEIGHTS)
        carry_files(folder, directory)
        text = json.dumps(config, indent=2, sort_keys=True)
        (directory / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8")
