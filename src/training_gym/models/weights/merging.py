"""A model with an adapter added to its weights, as a model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training_gym.models.adapter_folder import carry_files, require_adapter
from training_gym.models.architecture import base_of_adapter, read_config
from training_gym.models.base_weights import check_base
from training_gym.models.weights.adapters import load_adapter
from training_gym.models.weights.loading import load_model
from training_gym.models.weights.quiet import quiet, unusable
from training_gym.models.weights.saving import save_model


def merge_adapter(
    folder: Path | str, directory: Path | str, *, base: Path | str | None = None
) -> None:
    """Write the model that an adapter folder amounts to: its base with the adapter added.

    The weights keep the base model's type; tokenizer and chat template are the adapter's own where
    it brings them.

    Args:
        folder: an adapter in `peft`'s layout.
        directory: where to write.
        base: the base model's folder; None: the one the adapter names.

    Raises:
        ModelError: the folder holds no adapter, or base and adapter do not belong together.
    """
    import torch

    folder, directory = require_adapter(folder), Path(directory)
    base = Path(base) if base is not None else base_of_adapter(folder)
    check_base(folder, base)
    config = read_config(base)
    dtype = config.get("dtype") or config.get("torch_dtype") or "float32"
    model: Any = load_adapter(load_model(base, dtype=dtype, device="cpu"), folder)
    with quiet(), unusable(folder), torch.no_grad():
        merged = model.merge_and_unload(safe_merge=True)
    save_model(merged, base, directory)
    carry_files(folder, directory)
