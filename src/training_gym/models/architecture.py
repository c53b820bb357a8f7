"""What the planner needs to know of a model, from its own files and without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training_gym.models.family_defaults import DEFAULTS, MAY_BE_ABSENT
from training_gym.models.gguf_header import GgufHeader, read_header
from training_gym.models.parameters import EXACT, Sizes, num_experts, sizes
from training_gym.models.safetensors_header import num_values, tensor_shapes
from training_gym.spec.errors import ModelError
from training_gym.spec.plan import Architecture

_OTHER_NAMES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "d_ff"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "n_ctx"),
}
"""What older families call the same thing."""

_TEXT_FAMILIES = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Families that see pictures too, to the name of their text part."""
_GGUF_FAMILIES = {"gemma3": "gemma3_text", "qwen3moe": "qwen3_moe", "qwen2moe": "qwen2_moe"}
_GGUF_NOT_CAUSAL = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert"}
    | {"t5", "t5encoder", "clip", "wavtokenizer-dec", "gemma-embedding"}
)
_CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel")
_MULTIMODAL_ENDING = "ForConditionalGeneration"


def read(path: Path | str) -> Architecture:
    """The architecture of a model folder, an adapter's folder, a `config.json` or a GGUF file.

    Raises:
        ModelError: there is no such file, it is damaged, or the model is no causal language model.
    """
    path = Path(path)
    if path.suffix.lower() == ".gguf":
        return of_gguf(read_header(path), path)
    folder = path.parent if path.name == "config.json" else path
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        folder = base_of_adapter(folder)
    config = read_config(folder)
    return of_config(config, folder)


def base_of_adapter(folder: Path) -> Path:
    """The base model's folder that an adapter folder names; raises `ModelError` if it is gone."""
    config = _json(folder / "adapter_config.json")
    base = Path(config.get("base_model_name_or_path") or "")
    if not (base / "config.json").is_file():
        raise ModelError(
            f"the adapter in {folder} belongs to {str(base)!r}, which is not here",
            fix=f"correct base_model_name_or_path in {folder / 'adapter_config.json'}",
        )
    return base


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`; raises `ModelError` if it is missing or damaged."""
    file = folder / "config.json"
    if not file.is_file():
        raise ModelError(f"{folder} has no config.json", fix="give the folder that holds it")
    return _json(file)


def _json(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}", fix="fetch the model again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} holds no configuration", fix="fetch the model again")
    return config


def check_causal(config: dict[str, Any], where: Path | str) -> None:
    """Refuse, with a `ModelError`, what does not predict the next token of a text."""
    names = config.get("architectures") or []
    kind = ", ".join(names) or str(config.get("model_type"))
    if config.get("is_encoder_decoder"):
        reason = "an encoder-decoder model"
    elif not _predicts_text(names, config):
        reason = "no causal language model"
    else:
        return
    raise ModelError(
        f"{where} is a {kind}: {reason}",
        fix="take a model whose config.json says …ForCausalLM",
    )


def _predicts_text(names: list[str], config: dict[str, Any]) -> bool:
    if not names:  # Files made by hand; the family must speak for itself.
        return config.get("model_type") in EXACT
    if any(name.endswith(_CAUSAL_ENDINGS) for name in names):
        return True
    return any(name.endswith(_MULTIMODAL_ENDING) for name in names) and bool(
        config.get("text_config")
    )


def of_config(config: dict[str, Any], where: Path | str) -> Architecture:
    """The architecture that a configuration describes.

    Args:
        config: content of a `config.json`.
        where: the model, for errors; where it is a folder with weights of a family whose
            arithmetic is not known here, the parameters are counted in them.
    """
    check_causal(config, where)
    full = _filled(config, where)
    family = full["model_type"]
    found = sizes(family, full)
    chosen = full.get("num_experts_per_tok") or full.get("top_k_experts") or 0
    return Architecture(
        family=family,
        num_parameters=_num_parameters(family, found, "text_config" in config, Path(where)),
        max_context_tokens=full["max_position_embeddings"],
        experts=num_experts(full),
        experts_per_token=int(chosen) if num_experts(full) else 0,
        **_shape(full),
        **_widths(found),
    )


def _filled(config: dict[str, Any], where: Path | str) -> dict[str, Any]:
    """The text part of a configuration, with its family's defaults and every derived size."""
    text = dict(config.get("text_config") or config)
    family = text.get("model_type") or str(config.get("model_type"))
    family = _TEXT_FAMILIES.get(family, family)
    full: dict[str, Any] = {**DEFAULTS.get(family, {}), **_without_none(text)}
    full["model_type"] = family
    for name in _OTHER_NAMES:
        full[name] = _first(full, name)
    if full["intermediate_size"] is None and full["hidden_size"]:
        # Where all feed-forward parts are mixtures, none has a width of its own.
        full["intermediate_size"] = full.get("moe_intermediate_size") or 4 * full["hidden_size"]
    absent = [name for name in (*_OTHER_NAMES, "vocab_size") if not full.get(name)]
    if absent:
        raise ModelError(
            f"the config.json of {where} does not say {', '.join(absent)}",
            fix="fetch the model again, or take another",
        )
    full.setdefault("num_key_value_heads", full["num_attention_heads"])
    if "qk_nope_head_dim" in full:  # latent attention: what files call head_dim is a part of it
        full["head_dim"] = full["qk_nope_head_dim"] + full["qk_rope_head_dim"]
    full.setdefault("head_dim", full["hidden_size"] // full["num_attention_heads"])
    tied = config.get("tie_word_embeddings", full.get("tie_word_embeddings", False))
    full["tie_word_embeddings"] = bool(tied)
    return full


def _without_none(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in config.items() if value is not None or name in MAY_BE_ABSENT
    }


def _first(config: dict[str, Any], name: str) -> Any:
    names = (name, *_OTHER_NAMES[name])
    return next((config[known] for known in names if config.get(known) is not None), None)


def _num_parameters(family: str, found: Sizes, nested: bool, folder: Path) -> int:
    if family in EXACT and not nested:
        return found.num_parameters
    try:
        return num_values(tensor_shapes(folder))
    except ModelError:
        return found.num_parameters  # No weights here yet: the arithmetic must do.


def of_gguf(header: GgufHeader, where: Path | str) -> Architecture:
    """The architecture that a GGUF header describes."""
    kind = header.architecture
    if kind in _GGUF_NOT_CAUSAL or not header.get("{arch}.block_count"):
        raise ModelError(
            f"{where} is a {kind or 'nameless'} model: no causal language model",
            fix="take a model that generates text, such as a llama or qwen3",
        )
    full = _of_header(header)
    family = full["model_type"]
    return Architecture(
        family=family,
        num_parameters=sum(
            t.num_values for t in header.tensors if not t.name.startswith("rope_freqs")
        ),
        max_context_tokens=header.get("{arch}.context_length"),
        experts=full["num_experts"],
        experts_per_token=full["num_experts_per_tok"],
        **_shape(full),
        **(_widths(sizes(family, full)) if family in EXACT else {}),
    )


def _of_header(header: GgufHeader) -> dict[str, Any]:
    """What a header says, in a configuration's words."""
    heads = header.get("{arch}.attention.head_count")
    key_heads = header.get("{arch}.attention.head_count_kv", heads)
    hidden = header.get("{arch}.embedding_length")
    family = _GGUF_FAMILIES.get(header.architecture, header.architecture)
    return {
        **DEFAULTS.get(family, {}),
        "model_type": family,
        "hidden_size": hidden,
        "num_hidden_layers": header.get("{arch}.block_count"),
        "intermediate_size": header.get("{arch}.feed_forward_length", 0),
        "num_attention_heads": heads,
        "num_key_value_heads": max(key_heads) if isinstance(key_heads, list) else key_heads,
        "head_dim": header.get("{arch}.attention.key_length") or hidden // heads,
        "vocab_size": len(header.get("tokenizer.ggml.tokens", ())),
        "tie_word_embeddings": all(t.name != "output.weight" for t in header.tensors),
        "num_experts": header.get("{arch}.expert_count", 0),
        "num_experts_per_tok": header.get("{arch}.expert_used_count", 0),
        "moe_intermediate_size": header.get("{arch}.expert_feed_forward_length", 0),
    }


def _shape(full: dict[str, Any]) -> dict[str, Any]:
    """What a whole configuration says in so many words."""
    return {
        "num_layers": full["num_hidden_layers"],
        "hidden_size": full["hidden_size"],
        "intermediate_size": full["intermediate_size"],
        "num_heads": full["num_attention_heads"],
        "num_kv_heads": full["num_key_value_heads"],
        "head_dim": full["head_dim"],
        "vocab_size": full["vocab_size"],
        "tied_embeddings": full["tie_word_embeddings"],
    }


def _widths(found: Sizes) -> dict[str, int]:
    """What an architecture says beside its parameters."""
    return {name: value for name, value in found._asdict().items() if name != "num_parameters"}
