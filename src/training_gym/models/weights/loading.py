"""A folder in Hugging Face layout becomes a model that can be trained. Nothing is fetched here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.architecture import base_of_adapter, check_causal, read_config
from training_gym.models.safetensors_header import tensor_shapes
from training_gym.models.weights.quiet import quiet
from training_gym.spec.errors import ModelError
from training_gym.spec.recipe import Lora

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

ADAPTER_CONFIG = "adapter_config.json"


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
        base = load_model(base_of_adapter(folder), dtype=dtype, device=device)
        return _with_saved_adapter(base, folder, adapter)
    _check_trainable(read_config(folder), folder)
    tensor_shapes(folder)
    model = _from_folder(folder, _as_dtype(dtype)).to(device)
    return model if adapter is None else _with_new_adapter(model, adapter, seed)


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

    with _unusable(folder), quiet():
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


@contextlib.contextmanager
def _unusable(folder: Path) -> Iterator[None]:
    """Boundary with the loader: what it raises for files it cannot use is the user's to mend."""
    from safetensors import SafetensorError

    known = (ValueError, KeyError, TypeError, RuntimeError, OSError, ImportError, SafetensorError)
    try:
        yield
    except known as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"{folder} cannot be loaded: {lines[0]}",
            fix="fetch the model again; for a new architecture use a newer transformers",
        ) from error


def check_complete(place: Path, report: dict[str, Any]) -> None:
    """Refuse with a `ModelError` a model some of whose weights would be random numbers."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{place} lacks {len(missing)} weights, the first is {missing[0]}",
            fix="fetch the model again, or check that config.json belongs to these weights",
        )


def _with_new_adapter(model: PreTrainedModel, adapter: Lora, seed: int) -> PreTrainedModel:
    import torch
    from peft import LoraConfig, get_peft_model

    names = list(adapter.target_modules)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules="all-linear" if names == ["all-linear"] else names,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        try:
            return get_peft_model(model, config)
        except ValueError as error:
            raise ModelError(
                f"no layers of {model.config.model_type} are called {', '.join(names)}",
                fix="target_modules=('all-linear',), or names such as q_proj and v_proj",
            ) from error


def _with_saved_adapter(
    base: PreTrainedModel, folder: Path, wanted: Lora | None
) -> PreTrainedModel:
    from peft import PeftModel

    with _unusable(folder), quiet():
        model = PeftModel.from_pretrained(base, folder, is_trainable=True)
    config = model.peft_config["default"]
    saved = {"rank": config.r, "alpha": config.lora_alpha, "dropout": config.lora_dropout}
    for name, value in saved.items():
        if wanted is not None and getattr(wanted, name) != value:
            raise ModelError(
                f"the adapter in {folder} has {name} {value}, {getattr(wanted, name)} is asked for",
                fix=f"set {name}={value}, or start from the base model",
            )
    return model
