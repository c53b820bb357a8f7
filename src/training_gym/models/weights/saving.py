"""A trained model becomes a folder in Hugging Face layout that any engine can serve."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from training_gym.models.architecture import base_of_adapter
from training_gym.models.weights.loading import ADAPTER_CONFIG
from training_gym.models.weights.quiet import quiet

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

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


def save_model(
    model: PreTrainedModel, source: Path | str, directory: Path | str, *, merge: bool = False
) -> Literal["full", "adapter"]:
    """Write `model` to `directory`; tied embeddings are written once.

    Args:
        model: what `load_model` returned, trained since; it is not changed.
        source: folder it was loaded from, whose tokenizer and template go along byte for byte.
        directory: where to write; made if it is missing.
        merge: write a model with the adapter added to its weights instead of the adapter alone.

    Returns:
        `adapter` where only an adapter was written, else `full`.
    """
    source, directory = Path(source), Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    adapted = hasattr(model, "peft_config")
    if adapted and not merge:
        _save_adapter(model, source, directory)
    elif adapted:
        _save_whole(model.get_base_model(), directory, _merged_state(model))
    else:
        _save_whole(model, directory, None)
    for name in CARRIED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, directory / name)
    return "adapter" if adapted and not merge else "full"


def _save_whole(
    model: PreTrainedModel, directory: Path, state: dict[str, torch.Tensor] | None
) -> None:
    from transformers import GenerationConfig

    # The source's own generation_config.json is copied; writing the parsed one would refuse models
    # whose authors left contradictory sampling flags in it.
    parsed, model.generation_config = model.generation_config, GenerationConfig()
    try:
        with quiet():
            model.save_pretrained(directory, state_dict=state)
    finally:
        model.generation_config = parsed
    (directory / "generation_config.json").unlink(missing_ok=True)


def _save_adapter(model: Any, source: Path, directory: Path) -> None:
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    config = model.peft_config["default"]
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()},
        directory / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    kept = config.base_model_name_or_path, config.inference_mode
    base = base_of_adapter(source) if (source / ADAPTER_CONFIG).is_file() else source
    config.base_model_name_or_path, config.inference_mode = str(base.resolve()), True
    try:
        config.save_pretrained(directory)
    finally:
        config.base_model_name_or_path, config.inference_mode = kept


def _merged_state(model: Any) -> dict[str, torch.Tensor]:
    """The base model's weights with the adapter added, in new tensors: the model stays as it is."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    base = model.get_base_model()
    deltas = {
        f"{name}.base_layer.weight": layer.get_delta_weight("default")
        for name, layer in base.named_modules()
        if isinstance(layer, BaseTunerLayer)
    }
    merged = {}
    for name, tensor in base.state_dict().items():
        if ".lora_" in name:
            continue
        value = tensor + deltas[name].to(tensor.dtype) if name in deltas else tensor
        merged[name.replace(".base_layer.", ".")] = value
    return merged
