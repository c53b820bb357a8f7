"""Weights under the names and in the shapes in which a model's own files have them."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def plain_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights under the base model's names, one at a time, adapters merged into them.

    A merged weight is made anew and lives as long as the caller keeps it.
    """
    adapted = {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer")
    }
    for name, value in model.state_dict().items():
        if ".lora_" in name or ".modules_to_save." in name:
            continue
        owner, _, leaf = name.rpartition(".base_layer.")
        weight = value
        if owner in adapted and leaf == "weight":
            for adapter in adapted[owner].active_adapters:
                weight = weight + adapted[owner].get_delta_weight(adapter).to(weight.dtype)
        yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), weight
