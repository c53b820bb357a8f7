"""Low-rank adapters beside a model's weights: new ones, saved ones, several of them.

Everything is `peft`'s own: its modules in memory, its layout on disk, so that any tool that loads
its adapters loads ours.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.adapter_folder import ADAPTER_CONFIG
from training_gym.models.architecture import base_of_adapter
from training_gym.models.base_weights import (
    ADAPTER_WEIGHTS,
    BASE_KEY,
    base_sha256,
    check_base,
)
from training_gym.models.parameters import ATTENTION_ONLY
from training_gym.models.weights.quiet import quiet, unusable
from training_gym.spec.errors import ModelError, did_you_mean
from training_gym.spec.recipe import Lora

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig
    from transformers import PreTrainedModel

DEFAULT = "default"
"""Name of a model's adapter where it has only one."""

_PICTURES_AND_SOUND = r".*\b(vision_tower|visual|audio_tower|multi_modal_projector|embed_\w+)\b.*"
"""Layers that a text never passes."""


def adapter_names(model: Any) -> tuple[str, ...]:
    """Names of a model's adapters; none for a model without."""
    return tuple(getattr(model, "peft_config", None) or ())


def add_adapter(
    model: PreTrainedModel, adapter: Lora, *, name: str = DEFAULT, seed: int = 0
) -> PreTrainedModel:
    """A model with one adapter more, new and trainable; the first one wraps the model.

    Args:
        model: what `load_model` returned.
        adapter: rank, scale and layers.
        name: what it is called beside others: letters, digits, `_` and `-`.
        seed: what its first values are drawn from.

    Raises:
        ModelError: the name is taken or unusable, or no layer is called as wanted.
    """
    import torch
    from peft import PeftModel, get_peft_model

    _check_name(model, name)
    config = _lora_config(adapter, model)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        try:
            if not isinstance(model, PeftModel):
                return get_peft_model(model, config, adapter_name=name)
            model.add_adapter(name, config)
        except ValueError as error:
            raise _not_added(model.config.model_type, adapter, str(error)) from error
    _make_trainable(model)
    return model


def _not_added(kind: str, adapter: Lora, why: str) -> ModelError:
    if "not found in the base model" in why or "No modules were targeted" in why:
        return ModelError(
            f"no layers of {kind} are called {', '.join(adapter.target_modules)}",
            fix="target_modules=('all-linear',), or names such as q_proj and v_proj",
        )
    return ModelError(
        f"{kind} does not take this adapter: {why.splitlines()[0]}",
        fix="choose other target_modules, or give the model this adapter alone",
    )


def _check_name(model: Any, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or "lora_" in name:
        raise ModelError(
            f"an adapter cannot be called {name!r}", fix="use letters, digits, '_' and '-'"
        )
    if name in adapter_names(model):
        raise ModelError(
            f"there is an adapter called {name!r} already", fix="give this one another name"
        )


def _lora_config(adapter: Lora, model: Any) -> LoraConfig:
    from peft import LoraConfig

    names: str | list[str] = list(adapter.target_modules)
    if names == ["all-linear"]:
        names = _linear_layers(model)
    composite = hasattr(model.config, "text_config")
    return LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=names,
        exclude_modules=_PICTURES_AND_SOUND if composite else None,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _linear_layers(model: Any) -> str | list[str]:
    """What covers all linear layers, as `peft` wants to be told.

    In some mixtures `peft` takes the names of feed-forward layers, and "all-linear", for the
    experts and the router, which are parameters of their own kind; there it is attention alone.
    """
    import torch

    if model.config.model_type not in ATTENTION_ONLY:
        return "all-linear"
    layers = (path for path, layer in model.named_modules() if isinstance(layer, torch.nn.Linear))
    names = {path.rpartition(".")[2] for path in layers if ".mlp." not in path}
    return sorted(names - {"lm_head"})


def _make_trainable(model: Any) -> None:
    """All adapters train, the base does not; `peft` lets only the active one."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def load_adapter(
    model: PreTrainedModel, folder: Path | str, *, name: str = DEFAULT, wanted: Lora | None = None
) -> PreTrainedModel:
    """A model with the saved adapter in `folder` beside those it has, trainable.

    Args:
        model: the adapter's base model, or one with adapters already.
        folder: what `save_adapter`, a run's checkpoint or `peft` wrote.
        name: what it is called from now on.
        wanted: what the adapter must be like; None: anything.

    Raises:
        ModelError: it is unreadable, was trained over other weights, or is not as wanted.
    """
    from peft import PeftModel

    folder = Path(folder)
    _check_name(model, name)
    loaded_from = Path(model.config._name_or_path)
    if loaded_from.is_dir():
        check_base(folder, loaded_from)
    with unusable(folder), quiet():
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), adapter_name=name, is_trainable=True)
            adapted: Any = model
        else:
            adapted = PeftModel.from_pretrained(model, folder, adapter_name=name, is_trainable=True)
    _make_trainable(adapted)
    config = adapted.peft_config[name]
    saved = {"rank": config.r, "alpha": config.lora_alpha, "dropout": config.lora_dropout}
    for setting, value in saved.items():
        if wanted is not None and getattr(wanted, setting) != value:
            raise ModelError(
                f"the adapter in {folder} has {setting} {value}, "
                f"{getattr(wanted, setting)} is asked for",
                fix=f"set {setting}={value}, or start from the base model",
            )
    result: PreTrainedModel = adapted
    return result


def replace_adapter(model: Any, folder: Path | str, name: str) -> None:
    """Give an adapter the values saved in `folder`; where there is none of this name, add it.

    Parameters stay the same objects, so whatever trains them goes on.

    Raises:
        ModelError: as `load_adapter` does, or the saved one has other sizes; nothing has changed.
    """
    import torch

    if name not in adapter_names(model):
        load_adapter(model, folder, name=name)
        return
    coming = f"{name}-coming"
    load_adapter(model, folder, name=coming)
    try:
        one, other = (_low_rank(model, adapter) for adapter in (name, coming))
        alphas = {model.peft_config[adapter].lora_alpha for adapter in (name, coming)}
        same = {key: p.shape for key, p in one.items()} == {k: p.shape for k, p in other.items()}
        if not same or len(alphas) > 1:
            raise ModelError(
                f"the adapter in {folder} is not of the size of {name!r}",
                fix="load it under another name",
            )
        with torch.no_grad():
            for key, parameter in one.items():
                parameter.copy_(other[key])
    finally:
        model.delete_adapter(coming)
        _make_trainable(model)


def _low_rank(model: Any, name: str) -> dict[str, torch.nn.Parameter]:
    """Parameters of one adapter, by names that do not contain its own."""
    marked = f".{name}."
    return {
        path.replace(marked, "."): parameter
        for path, parameter in model.named_parameters()
        if "lora_" in path and marked in path
    }


def save_adapter(
    model: Any,
    source: Path | str,
    directory: Path | str,
    *,
    name: str = DEFAULT,
    state: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write one adapter in `peft`'s layout, with the hash of the weights it belongs to.

    Args:
        model: a model with adapters.
        source: folder of the base model, or of an adapter that names it.
        directory: where to write; made if it is missing.
        name: which adapter.
        state: what the model's `state_dict()` would be, where that must not be called.

    Raises:
        ModelError: there is no such adapter.
    """
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    source, directory = Path(source), Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = config_of(model, name)
    base = base_of_adapter(source) if (source / ADAPTER_CONFIG).is_file() else source
    own = get_peft_model_state_dict(
        model,
        state_dict=None if state is None else dict(state),
        adapter_name=name,
        save_embedding_layers=False,
    )
    save_file(
        {key: tensor.detach().cpu().contiguous() for key, tensor in own.items()},
        directory / ADAPTER_WEIGHTS,
        metadata={"format": "pt", BASE_KEY: base_sha256(source)},
    )
    _order_metadata(directory / ADAPTER_WEIGHTS)
    kept = config.base_model_name_or_path, config.inference_mode
    config.base_model_name_or_path, config.inference_mode = str(base.resolve()), True
    try:
        config.save_pretrained(directory)
    finally:
        config.base_model_name_or_path, config.inference_mode = kept
    _order_sets(directory / ADAPTER_CONFIG)


def _order_metadata(file: Path) -> None:
    """Sort what `safetensors` writes in the order of a hash table, which differs each time."""
    with file.open("r+b") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length, "the same header in another order is as long"
        stream.seek(8)
        stream.write(text.ljust(length))


def _order_sets(file: Path) -> None:
    """Sort what `peft` writes in the order of a set: equal adapters become equal files."""
    config = json.loads(file.read_text(encoding="utf-8"))
    for name in ("target_modules", "target_parameters"):
        if isinstance(config.get(name), list):
            config[name].sort()
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def config_of(model: Any, name: str) -> Any:
    """`peft`'s description of one adapter; raises `ModelError` where there is none."""
    names = adapter_names(model)
    if name not in names:
        raise ModelError(f"the model has no adapter called {name!r}", fix=did_you_mean(name, names))
    return model.peft_config[name]
