from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training_gym.models.architecture import of_config, read
from training_gym.models.known_models import CATALOGUE
from training_gym.models.parameters import EXACT
from training_gym.models.weights import add_adapter
from training_gym.spec.errors import ModelError
from training_gym.spec.recipe import Lora

SMALL = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
MIXTURE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTED = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 10,
    "kv_lora_rank": 14,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 8,
}
LINEAR = {
    "head_dim": 8,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
PER_LAYER = {
    "head_dim": 6,
    "global_head_dim": 10,
    "hidden_size_per_layer_input": 5,
    "vocab_size_per_layer_input": 31,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", SMALL),
    "llama untied, biased": ("llama", SMALL | {"attention_bias": True, "mlp_bias": True}),
    "llama tied": ("llama", SMALL | {"tie_word_embeddings": True}),
    "llama with head_dim": ("llama", SMALL | {"head_dim": 10}),
    "mistral": ("mistral", SMALL),
    "qwen2": ("qwen2", SMALL),
    "qwen2 tied": ("qwen2", SMALL | {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", SMALL),
    "qwen3 biased": ("qwen3", SMALL | {"attention_bias": True, "head_dim": 8}),
    "smollm3": ("smollm3", SMALL | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    "gemma3_text": ("gemma3_text", SMALL | {"attention_bias": True}),
    "qwen3_moe": ("qwen3_moe", SMALL | MIXTURE | {"head_dim": 8}),
    "qwen3_moe, some dense": (
        "qwen3_moe",
        SMALL | MIXTURE | {"decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ),
    "qwen3_5_text": ("qwen3_5_text", SMALL | LINEAR),
    "qwen3_5_text, every other layer": (
        "qwen3_5_text",
        SMALL | LINEAR | {"full_attention_interval": 2, "attention_bias": True},
    ),
    "qwen3_5_moe_text": (
        "qwen3_5_moe_text",
        SMALL | LINEAR | MIXTURE | {"shared_expert_intermediate_size": 20},
    ),
    "gemma4_text": ("gemma4_text", SMALL | PER_LAYER),
    "gemma4_text, shared": (
        "gemma4_text",
        SMALL
        | PER_LAYER
        | {"num_hidden_layers": 5, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}
        | {"layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"]},
    ),
    "gemma4_text, mixture": (
        "gemma4_text",
        SMALL
        | {"num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16}
        | {"enable_moe_block": True, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
        | {"hidden_size_per_layer_input": 0},
    ),
    "glm4": ("glm4", SMALL | {"head_dim": 6, "pad_token_id": 0}),
    "glm4_moe": ("glm4_moe", SMALL | ROUTED | {"head_dim": 6, "attention_bias": True}),
    "glm4_moe, normed": ("glm4_moe", SMALL | ROUTED | {"head_dim": 6, "use_qk_norm": True}),
    "glm4_moe_lite": ("glm4_moe_lite", SMALL | ROUTED | LATENT | {"mlp_layer_types": None}),
    "deepseek_v3": ("deepseek_v3", SMALL | ROUTED | LATENT),
    "deepseek_v3, queries as they are": (
        "deepseek_v3",
        SMALL | ROUTED | LATENT | {"q_lora_rank": None, "attention_bias": True},
    ),
    "gpt_oss": ("gpt_oss", SMALL | {"head_dim": 6, "num_local_experts": 6}),
}
PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm3-3b": 3_075_098_624,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
}


def meta_model(family: str, config: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config))


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_equal_those_of_the_real_model(name: str) -> None:
    family, config = CONFIGS[name]
    model = meta_model(family, config)
    written = {"model_type": family, "architectures": ["SomethingForCausalLM"], **config}
    architecture = of_config(written, name)
    assert of_config(json.loads(model.config.to_json_string()) | written, name) == architecture
    assert architecture.num_parameters == model.num_parameters()
    assert architecture.family == family
    assert architecture.tied_embeddings == bool(model.config.tie_word_embeddings)
    adapted = add_adapter(model, Lora(rank=1))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert architecture.adapted_widths == trained


@pytest.mark.parametrize("name", ["qwen3-0.6b", "gemma-3-270m", "qwen3-30b-a3b"])
def test_real_shapes_equal_those_of_the_real_model(name: str) -> None:
    facts = CATALOGUE[name].architecture
    config = {
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.num_layers,
        "num_attention_heads": facts.num_heads,
        "num_key_value_heads": facts.num_kv_heads,
        "head_dim": facts.head_dim,
        "tie_word_embeddings": facts.tied_embeddings,
    }
    if facts.experts:
        config |= {"num_experts": facts.experts, "moe_intermediate_size": 768}
    assert facts.num_parameters == meta_model(facts.family, config).num_parameters()


@pytest.mark.parametrize("name", PUBLISHED)
def test_catalogue_counts_are_the_published_ones(name: str) -> None:
    assert CATALOGUE[name].architecture.num_parameters == PUBLISHED[name]


def test_every_written_family_is_read_back_exactly(tmp_path: Path) -> None:
    from training_gym.models.safetensors_header import num_values, tensor_shapes
    from training_gym.testing.tiny import tiny_model

    for family in ("mistral", "qwen2", "gemma3_text"):
        folder = tiny_model(tmp_path / family, family)
        assert read(folder).num_parameters == num_values(tensor_shapes(folder)), family


ROUTED_SIZES: dict[str, tuple[float, dict[str, Any]]] = {
    # Billions of parameters as published or counted elsewhere, and what the families leave open.
    "gpt_oss": (
        20.9,
        {"vocab_size": 201_088, "hidden_size": 2880, "intermediate_size": 2880}
        | {"num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8}
        | {"num_local_experts": 32},
    ),
    "deepseek_v3": (
        671.0,
        {"vocab_size": 129_280, "hidden_size": 7168, "intermediate_size": 18_432}
        | {"num_hidden_layers": 61, "num_attention_heads": 128},
    ),
    "glm4_moe": (
        107.0,
        {"vocab_size": 151_552, "hidden_size": 4096, "intermediate_size": 10_944}
        | {"num_hidden_layers": 46, "num_attention_heads": 96, "head_dim": 128}
        | {"attention_bias": True},
    ),
    "glm4_moe_lite": (
        29.9,
        {"vocab_size": 154_880, "hidden_size": 2048, "intermediate_size": 10_240}
        | {"num_hidden_layers": 47, "num_attention_heads": 20},
    ),
    "qwen3_5_moe_text": (
        34.7,
        {"vocab_size": 248_320, "hidden_size": 2048, "num_hidden_layers": 40}
        | {"num_attention_heads": 16, "num_key_value_heads": 2},
    ),
}


@pytest.mark.parametrize("family", ROUTED_SIZES)
def test_large_models_have_their_published_size(family: str) -> None:
    billions, config = ROUTED_SIZES[family]
    written = {"model_type": family, "architectures": ["SomethingForCausalLM"], **config}
    found = of_config(written | {"max_position_embeddings": 4096}, family)
    assert found.num_parameters / 1e9 == pytest.approx(billions, rel=5e-3)


@pytest.mark.parametrize("family", sorted(EXACT))
def test_what_files_leave_out_is_what_the_family_assumes(family: str) -> None:
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 40}
    sizes |= {"num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8}
    model = meta_model(family, sizes | {"pad_token_id": 0})
    written = {"model_type": family, "architectures": ["SomethingForCausalLM"], **sizes}
    architecture = of_config(written | {"max_position_embeddings": 64}, family)
    assert architecture.num_parameters == model.num_parameters()


def test_nested_text_configuration_fills_in_gemmas_defaults() -> None:
    nested = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
        },
        "vision_config": {"hidden_size": 1152},
    }
    facts = of_config(nested, "gemma-3-4b")
    assert (facts.num_heads, facts.num_kv_heads, facts.head_dim) == (8, 4, 256)
    assert (facts.vocab_size, facts.tied_embeddings) == (262_208, True)
    assert facts.num_parameters == 3_880_263_168


def test_older_families_are_read_by_their_own_names() -> None:
    facts = of_config(
        {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        "gpt2",
    )
    assert (facts.hidden_size, facts.num_layers, facts.num_kv_heads) == (768, 12, 12)
    assert (facts.intermediate_size, facts.max_context_tokens) == (3072, 1024)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "no causal language model"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "no causal language model"),
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
            | {"is_encoder_decoder": True},
            "an encoder-decoder model",
        ),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"]}, "no causal"),
        ({"model_type": "clip", "text_config": {}, "architectures": ["CLIPModel"]}, "no causal"),
        ({"model_type": "blip", "architectures": ["BlipForConditionalGeneration"]}, "no causal"),
        ({"model_type": "bert", "vocab_size": 9, "num_hidden_layers": 1}, "no causal"),
    ],
)
def test_what_does_not_predict_text_is_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        of_config(config, "somewhere")
    assert reason in caught.value.message
    assert "ForCausalLM" in caught.value.fix


def test_a_configuration_without_sizes_is_refused() -> None:
    with pytest.raises(ModelError, match="does not say num_hidden_layers"):
        of_config(
            {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
            | {"hidden_size": 8, "vocab_size": 9, "num_attention_heads": 1}
            | {"max_position_embeddings": 16},
            "somewhere",
        )


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_configuration_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read(tmp_path)


def test_reading_needs_neither_torch_nor_numpy(tiny_llama: Path) -> None:
    program = (
        "import sys; from training_gym.models.architecture import read; "
        "from training_gym.models.catalogue import resolve; "
        f"print(read(resolve({str(tiny_llama)!r})).num_parameters); "
        "print(sorted({'torch', 'transformers', 'numpy', 'gguf', 'huggingface_hub'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [str(read(tiny_llama).num_parameters), "[]"]


def test_an_adapter_folder_has_its_base_models_architecture(
    tiny_llama: Path, tmp_path: Path
) -> None:
    config = {"base_model_name_or_path": str(tiny_llama)}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    assert read(tmp_path) == read(tiny_llama)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/gone"}))
    with pytest.raises(ModelError, match="belongs to '/gone', which is not here"):
        read(tmp_path)
