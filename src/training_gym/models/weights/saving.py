"""A trained model becomes a folder in Hugging Face layout that any engine can serve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from training_gym.models.adapter_folder import carry_files
from training_gym.models.weights.adapters import adapter_names, save_adapter
from training_gym.models.weights.merged import merged_state
from training_gym.models.weights.quiet import quiet

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def save_model(
    model: PreTrainedModel,
    source: Path | str,
    directory: Path | str,
    *,
    merge: bool = False,
    adapter: str | None = None,
    state: Mapping[str, torch.Tensor] | None = None,
) -> Literal["full", "adapter"]:
    """Write `model` to `directory`; tied embeddings are written once.

    Args:
        model: what `load_model` returned, trained since; it is not changed.
        source: folder it was loaded from, whose tokenizer and template go along byte for byte.
        directory: where to write; made if it is missing.
        merge: write a model with the adapter added to its weights instead of the adapter alone.
        adapter: which one; None: the first.
        state: what the model's `state_dict()` would be, where that must not be called.

    Returns:
        `adapter` where only an adapter was written, else `full`.
    """
    source, directory = Path(source), Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = adapter_names(model)
    chosen = adapter or (names[0] if names else None)
    if chosen is None:
        _save_whole(model, directory, state)
    elif merge:
        _save_whole(model.get_base_model(), directory, merged_state(model, chosen))
    else:
        save_adapter(model, source, directory, name=chosen, state=state)
    carry_files(source, directory)
    return "adapter" if chosen is not None and not merge else "full"


def _save_whole(
    model: PreTrainedModel, directory: Path, state: Mapping[str, torch.Tensor] | None
) -> None:
    from transformers import GenerationConfig

    # The source's own generation_config.json is copied; writing the parsed one would refuse models
    # whose authors left contradictory sampling flags in it.
    parsed, model.generation_config = model.generation_config, GenerationConfig()
    try:
        with quiet():
            model.save_pretrained(directory, state_dict=None if state is None else dict(state))
    finally:
        model.generation_config = parsed
    (directory / "generation_config.json").unlink(missing_ok=True)
