"""Which weights an adapter belongs to: a hash that travels with it and is compared on loading."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from training_gym.models.architecture import base_of_adapter
from training_gym.models.safetensors_header import metadata, weight_files
from training_gym.models.store import file_sha256
from training_gym.spec.errors import ModelError

ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_KEY = "base_sha256"
"""Name of the hash among the metadata of an adapter's weights."""


def weights_sha256(folder: Path) -> str:
    """Hash of a model folder's weights: over names and hashes of its safetensors files.

    Files are read once in a process, unless they change.

    Raises:
        ModelError: a file is missing.
    """
    lines = "".join(f"{_hash_of(file)}  {file.name}\n" for file in weight_files(folder))
    return hashlib.sha256(lines.encode()).hexdigest()


def base_sha256(folder: Path) -> str:
    """Hash of the weights that an adapter trained from `folder` belongs to.

    Args:
        folder: a model's, or an adapter's: then its base model's weights count.

    Raises:
        ModelError: a file is missing.
    """
    adapter = not (folder / "config.json").is_file()
    return weights_sha256(base_of_adapter(folder) if adapter else folder)


def _hash_of(file: Path) -> str:
    status = file.stat()
    return _cached_hash(file.resolve(), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _cached_hash(file: Path, size: int, changed_ns: int) -> str:
    return file_sha256(file)


def recorded_base(adapter: Path) -> str | None:
    """The hash an adapter folder names; None: it comes from elsewhere and names none."""
    file = adapter / ADAPTER_WEIGHTS
    return metadata(file).get(BASE_KEY) if file.is_file() else None


def check_base(adapter: Path, base: Path) -> None:
    """Refuse, with a `ModelError`, an adapter that was trained over other weights than `base`."""
    wanted = recorded_base(adapter)
    if wanted is None:
        return
    found = weights_sha256(base)
    if found != wanted:
        raise ModelError(
            f"the adapter in {adapter} was trained over other weights than those in {base}: "
            f"their hash is {found[:12]}…, not {wanted[:12]}…",
            fix="put the base model back as it was, or name its folder in adapter_config.json",
        )
