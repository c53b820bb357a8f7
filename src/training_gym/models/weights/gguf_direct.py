"""The common families of GGUF files, converted tensor by tensor.

transformers converts them too, to the same bits (a test compares), but reads the vocabulary through
numpy several times over: this takes a quarter of the time and holds no model in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.gguf_header import GgufHeader, GgufTensor
from training_gym.models.weights.quiet import quiet
from training_gym.spec.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedConfig

FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
"""`general.architecture` to `model_type`."""

_LAYERS_OF_GEMMA_27B = 62
_GEMMA_LOCAL_THETA = 10_000.0


def convert_directly(file: Path, header: GgufHeader, directory: Path) -> None:
    """Write `config.json`, `generation_config.json` and float32 weights to `directory`.

    Raises:
        ModelError: tensors are missing, superfluous or of another shape than the sizes say.
    """
    from safetensors.numpy import save_file
    from transformers import GenerationConfig

    config = config_from(header)
    shapes = _wanted_shapes(config)
    tensors = dict(_tensors(file, header, _names(header, shapes)))
    _check_tensors(file, tensors, shapes)
    with quiet():
        config.save_pretrained(directory)
        GenerationConfig.from_model_config(config).save_pretrained(directory)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def config_from(header: GgufHeader) -> PreTrainedConfig:
    """The configuration that the header's sizes and token ids describe."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    family = FAMILIES[header.architecture]
    hidden, heads = header.get("{arch}.embedding_length"), header.get("{arch}.attention.head_count")
    names = {tensor.name for tensor in header.tensors}
    values: dict[str, Any] = {
        "architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]],
        "dtype": "float32",
        "vocab_size": len(header.get("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "intermediate_size": header.get("{arch}.feed_forward_length"),
        "num_hidden_layers": header.get("{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": header.get("{arch}.attention.head_count_kv", heads),
        "max_position_embeddings": header.get("{arch}.context_length"),
        "rms_norm_eps": header.get("{arch}.attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(header.get("{arch}.rope.freq_base", 10_000.0)),
        "tie_word_embeddings": "output.weight" not in names,
        "bos_token_id": header.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": header.get("tokenizer.ggml.padding_token_id"),
    }
    if family != "qwen2":
        values["head_dim"] = header.get("{arch}.attention.key_length", hidden // heads)
    if family in ("llama", "qwen3"):
        values["attention_bias"] = "blk.0.attn_q.bias" in names
    if family == "gemma3_text":
        values |= _gemma(header, values)
    return AutoConfig.for_model(family, **values)


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _gemma(header: GgufHeader, values: dict[str, Any]) -> dict[str, Any]:
    # Only the largest Gemma 3 scales attention by its width per head; no file says so.
    largest = values["num_hidden_layers"] == _LAYERS_OF_GEMMA_27B
    per_head = values["hidden_size"] // values["num_attention_heads"]
    return {
        "query_pre_attn_scalar": per_head if largest else values["head_dim"],
        "sliding_window": header.get("{arch}.attention.sliding_window"),
        "rope_parameters": {
            "full_attention": values["rope_parameters"],
            "sliding_attention": _rope(_GEMMA_LOCAL_THETA),
        },
    }


def _wanted_shapes(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights that transformers looks for, tied ones once."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"), quiet():
        model = AutoModelForCausalLM.from_config(config)
    tied = model.all_tied_weights_keys
    return {n: tuple(t.shape) for n, t in model.state_dict().items() if n not in tied}


def _tensors(
    file: Path, header: GgufHeader, names: dict[str, str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor by its name in transformers, as float32."""
    import numpy as np

    data = np.memmap(file, np.uint8, "r")
    for tensor in header.tensors:
        if tensor.name not in names:
            raise ModelError(
                f"{file} holds {tensor.name}, which no {header.architecture} model has",
                fix="use the model's safetensors folder",
            )
        values = _dequantised(data, header.data_start, tensor)
        yield names[tensor.name], _as_transformers_keeps_it(values, tensor.name, header)


def _names(header: GgufHeader, shapes: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """GGUF tensor names to those of transformers."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    kind = next(key for key, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
    known = get_tensor_name_map(kind, header.get("{arch}.block_count"))
    found = {}
    for name in shapes:
        stem, _, ending = name.rpartition(".")
        found[f"{known.get_name(stem)}.{ending}"] = name
    return found


def _dequantised(data: np.ndarray, start: int, tensor: GgufTensor) -> np.ndarray:
    import numpy as np
    from gguf import GGMLQuantizationType, dequantize

    size = tensor.num_bytes
    if size is None:
        raise ModelError(
            f"{tensor.name} is stored as type {tensor.type_code}, which is not known here",
            fix="use another quantisation, or the model's safetensors folder",
        )
    shape = tuple(reversed(tensor.shape))
    rows = data[start + tensor.offset :][:size].reshape(*shape[:-1], -1)
    values = dequantize(rows, GGMLQuantizationType(tensor.type_code))
    return np.array(values, dtype=np.float32).reshape(shape)


def _as_transformers_keeps_it(values: np.ndarray, name: str, header: GgufHeader) -> np.ndarray:
    """Undo what llama.cpp's writer does to a few tensors."""
    import numpy as np

    if header.architecture == "gemma3" and name.endswith("norm.weight"):
        return values - np.float32(1)  # Gemma multiplies by 1 + weight.
    heads = None
    if header.architecture == "llama" and ".attn_q." in name:
        heads = header.get("llama.attention.head_count")
    if header.architecture == "llama" and ".attn_k." in name:
        heads = header.get(
            "llama.attention.head_count_kv", header.get("llama.attention.head_count")
        )
    if heads is None:
        return values
    # Rotary pairs: neighbours in the file, half a head apart in transformers.
    paired = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2).reshape(values.shape))


def _check_tensors(
    file: Path, tensors: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> None:
    import numpy as np

    found = {name: values.shape for name, values in tensors.items()}
    wrong = sorted(name for name, shape in shapes.items() if found.get(name) != shape)
    if wrong:
        raise ModelError(
            f"{file} lacks {len(wrong)} weights in the right shape, the first is {wrong[0]}",
            fix="download the file again",
        )
    for name, values in tensors.items():
        if not np.isfinite(values).all():
            raise ModelError(
                f"{file} is damaged: {name} holds values that are no numbers",
                fix="download the file again",
            )
