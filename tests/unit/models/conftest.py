from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

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


def write_gguf(source: Path, file: Path, **metadata: object) -> Path:
    """Write a tiny qwen2 folder as a GGUF file, in float32."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((source / "config.json").read_text())
    vocabulary = json.loads((source / "tokenizer.json").read_text())
    tokens = sorted(
        [*vocabulary["model"]["vocab"].items()]
        + [(token["content"], token["id"]) for token in vocabulary["added_tokens"]],
        key=lambda pair: pair[1],
    )
    merges = metadata.get("merges", [])
    special = {token["id"] for token in vocabulary["added_tokens"]}
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(str(metadata.get("pre", "qwen2")))
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([3 if index in special else 1 for _, index in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(258)
    writer.add_pad_token_id(256)
    writer.add_chat_template((source / "chat_template.jinja").read_text())
    for key, value in dict(metadata.get("extra", {})).items():  # type: ignore[call-overload]
        writer.add_string(key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config["num_hidden_layers"])
    for name, tensor in load_file(source / "model.safetensors").items():
        stem, _, ending = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "qwen2", "qwen2")


@pytest.fixture
def gguf_writer(tiny_qwen2: Path) -> Callable[..., Path]:
    return functools.partial(write_gguf, tiny_qwen2)


@pytest.fixture(scope="session")
def tiny_gguf(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tiny_qwen2, tmp_path_factory.mktemp("gguf") / "tiny-f32.gguf")
