"""How many parameters a model has, as arithmetic from its configuration.

Exact for the families listed in `EXACT`; for other decoders the count of a Llama of their shape,
which is near but not exact.
"""

from __future__ import annotations

from typing import Any

EXACT = frozenset({"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "smollm3", "gemma3_text"})
_QUERY_KEY_NORMS = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
_OUTPUT_BIAS_TOO = frozenset({"llama", "qwen3", "qwen3_moe", "smollm3", "gemma3_text"})


def count_parameters(family: str, config: dict[str, Any]) -> int:
    """Parameters of a causal language model; tied embeddings count once.

    Args:
        family: `model_type`.
        config: the configuration with `head_dim`, `num_key_value_heads` and defaults filled in.
    """
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    embeddings = vocabulary * hidden * (1 if config["tie_word_embeddings"] else 2)
    layers = sum(
        _attention(family, config) + _norms(family, config) + _feed_forward(config, layer)
        for layer in range(config["num_hidden_layers"])
    )
    return int(embeddings + layers + hidden)


def _attention(family: str, config: dict[str, Any]) -> int:
    hidden = config["hidden_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    biased = family == "qwen2" or (family in _OUTPUT_BIAS_TOO and config.get("attention_bias"))
    biases = queries + 2 * keys if biased else 0
    if biased and family in _OUTPUT_BIAS_TOO:
        biases += hidden
    return int(hidden * (queries + 2 * keys) + queries * hidden + biases)


def _norms(family: str, config: dict[str, Any]) -> int:
    around = 4 if family == "gemma3_text" else 2
    inside = 2 * config["head_dim"] if family in _QUERY_KEY_NORMS else 0
    return int(around * config["hidden_size"] + inside)


def _feed_forward(config: dict[str, Any], layer: int) -> int:
    hidden = config["hidden_size"]
    experts = num_experts(config)
    if experts and _is_sparse(config, layer):
        inner = config.get("moe_intermediate_size") or config["intermediate_size"]
        return int(experts * 3 * hidden * inner + hidden * experts)
    inner = config["intermediate_size"]
    biases = 2 * inner + hidden if config.get("mlp_bias") else 0
    return int(3 * hidden * inner + biases)


def _is_sparse(config: dict[str, Any], layer: int) -> bool:
    if layer in (config.get("mlp_only_layers") or ()):
        return False
    return (layer + 1) % int(config.get("decoder_sparse_step") or 1) == 0


def num_experts(config: dict[str, Any]) -> int:
    """Experts of one sparse layer, 0 for a dense model."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return int(next((config[name] for name in names if config.get(name)), 0))
