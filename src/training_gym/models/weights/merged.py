"""The weights that a base model and an adapter amount to."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from training_gym.models.weights.adapters import DEFAULT, config_of

if TYPE_CHECKING:
    import torch


def merged_state(model: Any, name: str = DEFAULT) -> dict[str, torch.Tensor]:
    """The base model's weights with one adapter added, in new tensors: the model stays as it is."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    config = config_of(model, name)
    if config.modules_to_save or config.target_parameters:  # more than linear layers
        whole: Any = copy.deepcopy(model).merge_and_unload(adapter_names=[name])
        return dict(whole.state_dict())
    base = model.get_base_model()
    deltas = {
        f"{path}.base_layer.weight": layer.get_delta_weight(name)
        for path, layer in base.named_modules()
        if isinstance(layer, BaseTunerLayer) and name in layer.lora_A
    }
    merged = {}
    for path, tensor in base.state_dict().items():
        if ".lora_" in path:
            continue
        if path in deltas:  # added in float32, so that small changes are rounded once
            exact = torch.promote_types(tensor.dtype, torch.float32)
            tensor = (tensor.to(exact) + deltas[path].to(exact)).to(tensor.dtype)
        merged[path.replace(".base_layer.", ".")] = tensor
    return merged
