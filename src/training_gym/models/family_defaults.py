"""What a family's files leave out and its code assumes, where sizes depend on it."""

from __future__ import annotations

from typing import Any

_QWEN35 = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}

DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
    },
    "gemma4_text": {
        "vocab_size": 262_144,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
        "vocab_size_per_layer_input": 262_144,
        "hidden_size_per_layer_input": 256,
        "num_kv_shared_layers": 0,
        "attention_k_eq_v": False,
        "enable_moe_block": False,
        "use_double_wide_mlp": False,
    },
    "smollm3": {"tie_word_embeddings": True, "num_key_value_heads": 4},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35
    | {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}
    | {"num_experts": 256, "num_experts_per_tok": 8},
    "mistral": {"num_key_value_heads": 8},
    "gpt2": {"tie_word_embeddings": True},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    "glm4_moe": {
        "num_key_value_heads": 8,
        "n_shared_experts": 1,
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
    },
    "glm4_moe_lite": {
        "q_lora_rank": 768,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "n_shared_experts": 1,
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1536,
        "first_k_dense_replace": 1,
    },
    "deepseek_v3": {
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_shared_experts": 1,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
    },
    "gpt_oss": {
        "head_dim": 64,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "attention_bias": True,
    },
}
"""`model_type` to values of a configuration; published Gemma files leave out a lot."""

MAY_BE_ABSENT = frozenset({"q_lora_rank"})
"""Where a file's `null` is a value of its own and not a wish for the default."""
