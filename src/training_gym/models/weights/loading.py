"""A folder in Hugging Face layout becomes a model that can be trained. Nothing is fetched here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.adapter_folder import ADAPTER_CONFIG
from training_gym.models.architecture import base_of_adapter, check_causal, read_config
from training_gym.models.base_weights import check_base
from training_gym.models.safetensors_header import tensor_shapes
from training_gym.models.weights.adapters import add_adapter, load_adapter
from training_gym.models.weights.quiet import quiet, unusable
from training_gym.spec.errors import ModelError
from training_gym.spec.recipe import Lora

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def load_model(
    path: Path | str,
    *,
    dtype: str | torch.dtype,
    device: str | torch.device,
    adapter: Lora | None = None,
    seed: int = 0,
) -> PreTrainedModel:
    """The model in folder `path`, on `device`, with a trainable adapter if one is asked for.

    Args:
        path: model folder, or folder of an adapter that names its base model.
        dtype: `float32`, `bfloat16`, … or torch's own value.
        device: where the weights go.
        adapter: a new low-rank adapter to train instead of the weights; where `path` holds one, it
            goes on with that and this must describe the same.
        seed: what the new adapter's first values are drawn from.

    Raises:
        ModelError: a file is missing, short or damaged, or the model is no causal language model.
    """
    folder = Path(path)
    if (folder / ADAPTER_CONFIG).is_file():
        where = base_of_adapter(folder)
        check_base(folder, where)
        return load_adapter(load_model(where, dtype=dtype, device=device), folder, wanted=adapter)
    _check_trainable(read_config(folder), folder)
    tensor_shapes(folder)
    model = _from_folder(folder, _as_dtype(dtype)).to(device)
    return model if adapter is None else add_adapter(model, adapter, seed=seed)


def _check_trainable(config: dict[str, Any], folder: Path) -> None:
    check_causal(config, folder)
    quantization = config.get("quantization_config")
    if quantization:
        raise ModelError(
            f"the weights in {folder} are quantised ({quantization.get('quant_method')})",
            fix="take the model in bfloat16 or float32: quantised weights cannot be trained",
        )


def _as_dtype(dtype: str | torch.dtype) -> torch.dtype:
    import torch

    value = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise ModelError(f"weights cannot be held as {dtype!r}", fix="float32 or bfloat16")
    return value


def _from_folder(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    with unusable(folder), quiet():
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    check_complete(folder, report)
    return model


def check_complete(place: Path, report: dict[str, Any]) -> None:
    """Refuse with a `ModelError` a model some of whose weights would be random numbers."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{place} lacks {len(missing)} weights, the first is {missing[0]}",
            fix="fetch the model again, or check that config.json belongs to these weights",
        )
