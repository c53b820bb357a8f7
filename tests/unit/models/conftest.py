from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from training_gym.testing.tiny import tiny_model


@pytest.fixture(autouse=True)
def _own_home_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared tiny model: tests that change files copy it first."""
    return tiny_model(tmp_path_factory.mktemp("tiny") / "llama")


ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}


def write_gguf(source: Path, file: Path, *, pre: str = "qwen2", **texts: str) -> Path:
    """Write a tiny model's folder as a GGUF file in float32, as llama.cpp's converter would.

    Args:
        source: folder that `tiny_model` wrote.
        file: where to write.
        pre: `tokenizer.ggml.pre`.
        texts: further metadata, `__` standing for dots.
    """
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((source / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(file, architecture)
    write_sizes(writer, config)
    write_tokenizer(writer, source, pre)
    for key, value in texts.items():
        writer.add_string(key.replace("__", "."), value)
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name, tensor in load_file(source / "model.safetensors").items():
        stem, _, ending = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", as_written(tensor, name, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def write_sizes(writer: Any, config: dict[str, Any]) -> None:
    rope = config["rope_parameters"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
    if config["model_type"] == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])


def write_tokenizer(writer: Any, source: Path, pre: str) -> None:
    vocabulary = json.loads((source / "tokenizer.json").read_text())
    added = {token["content"]: token["id"] for token in vocabulary["added_tokens"]}
    ids = {**vocabulary["model"]["vocab"], **added}
    tokens = sorted(ids, key=ids.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in added else 1 for token in tokens])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_chat_template((source / "chat_template.jinja").read_text())


def as_written(tensor: Any, name: str, config: dict[str, Any]) -> Any:
    """What llama.cpp's converter makes of a tensor."""
    if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
        return tensor + 1
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    key = next((key for part, key in heads.items() if part in name), None)
    if config["model_type"] != "llama" or key is None:
        return tensor
    halves = tensor.reshape(config[key], 2, -1, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "qwen2", "qwen2")


@pytest.fixture
def gguf_writer(tiny_qwen2: Path) -> Callable[..., Path]:
    def write(file: Path, source: Path = tiny_qwen2, **metadata: str) -> Path:
        return write_gguf(source, file, **metadata)

    return write


@pytest.fixture(scope="session")
def tiny_gguf(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tiny_qwen2, tmp_path_factory.mktemp("gguf") / "tiny-f32.gguf")
