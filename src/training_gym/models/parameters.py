"""What a model's layers are made of, as arithmetic from its configuration.

Exact for the families listed in `EXACT`; for other decoders that of a Llama of their shape, which
is near but not exact. From the same parts come the number of parameters, what a low-rank adapter
adds, and what the sampler keeps per token and per sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from training_gym.models.layer_parts import Linear, Part, attention_part

EXACT = frozenset(
    {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "smollm3", "gemma3_text", "gpt_oss"}
    | {"qwen3_5_text", "qwen3_5_moe_text", "gemma4_text", "glm4", "glm4_moe", "glm4_moe_lite"}
    | {"deepseek_v3"}
)
ATTENTION_ONLY = frozenset({"qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3"})
"""Families in whose feed-forward parts an adapter of all linear layers covers nothing."""

_FOUR_NORMS = frozenset({"gemma3_text", "gemma4_text", "glm4"})


class Sizes(NamedTuple):
    """What a configuration amounts to."""

    num_parameters: int
    """Parameters of a causal language model; tied embeddings count once."""
    adapted_widths: int
    """Inputs plus outputs of the linear layers that an adapter of all linear layers covers."""
    cached_values: int
    """Numbers that the keys and values of one token take, over all layers."""
    state_values: int
    """Numbers that the states of linear attention take per sequence, over all layers."""
    active_width: int
    """Width of all feed-forward parts that one token passes, over all layers."""


def sizes(family: str, config: dict[str, Any]) -> Sizes:
    """Sizes of a model.

    Args:
        family: `model_type`.
        config: the configuration with `head_dim`, `num_key_value_heads` and defaults filled in.
    """
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    embeddings = vocabulary * hidden * (1 if config["tie_word_embeddings"] else 2)
    parts = list(_parts(family, config))
    adapted = [part for part in parts if family not in ATTENTION_ONLY or not part.active_width]
    return Sizes(
        num_parameters=embeddings + hidden + sum(part.num_parameters for part in parts),
        adapted_widths=sum(part.adapted_widths for part in adapted),
        cached_values=sum(part.cached for part in parts),
        state_values=sum(part.state for part in parts),
        active_width=sum(part.active_width for part in parts),
    )


def _parts(family: str, config: dict[str, Any]) -> Iterator[Part]:
    hidden = config["hidden_size"]
    norms = (4 if family in _FOUR_NORMS else 2) * hidden
    for layer in range(config["num_hidden_layers"]):
        yield attention_part(family, config, layer)
        yield from _feed_forward(family, config, layer)
        yield Part(others=norms)
    per_layer = config.get("hidden_size_per_layer_input") if family == "gemma4_text" else 0
    if per_layer:
        yield from _per_layer_inputs(config, int(per_layer))


def _per_layer_inputs(config: dict[str, Any], width: int) -> Iterator[Part]:
    """Gemma 4's small embedding for each layer, and how each takes it in."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    table = config["vocab_size_per_layer_input"] * layers * width
    yield Part((Linear(hidden, layers * width),), others=table + width)
    for _ in range(layers):
        yield Part((Linear(hidden, width), Linear(width, hidden)), others=hidden)


def _feed_forward(family: str, config: dict[str, Any], layer: int) -> Iterator[Part]:
    experts = num_experts(config)
    sparse = bool(experts) and _is_sparse(family, config, layer)
    if family == "gemma4_text":
        shared = layer >= config["num_hidden_layers"] - config["num_kv_shared_layers"]
        doubled = config["use_double_wide_mlp"] and shared
        yield _dense(config, config["intermediate_size"] * (2 if doubled else 1))
        if sparse:
            yield _gemma4_mixture(config, experts)
    elif sparse:
        yield from _mixture(family, config, experts)
    elif family == "glm4":  # one matrix for both projections in
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        yield Part((Linear(hidden, 2 * inner), Linear(inner, hidden)), active_width=inner)
    else:
        yield _dense(config, config["intermediate_size"])


def _dense(config: dict[str, Any], inner: int) -> Part:
    hidden, biased = config["hidden_size"], bool(config.get("mlp_bias"))
    into, out = Linear(hidden, inner, biased), Linear(inner, hidden, biased)
    return Part((into, into, out), active_width=inner)


def _mixture(family: str, config: dict[str, Any], experts: int) -> Iterator[Part]:
    """Experts, which are three-dimensional parameters, their router, and the shared expert."""
    hidden = config["hidden_size"]
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    chosen = int(config.get("num_experts_per_tok") or 1)
    others = experts * 3 * hidden * inner + hidden * experts
    if family == "gpt_oss":
        others += experts * (2 * inner + hidden) + experts
    yield Part(others=others, active_width=chosen * inner)
    if family == "qwen3_5_moe_text":
        yield _dense(config, config["shared_expert_intermediate_size"])
        yield Part((Linear(hidden, 1),))
    elif config.get("n_shared_experts"):
        yield _dense(config, inner * config["n_shared_experts"])


def _gemma4_mixture(config: dict[str, Any], experts: int) -> Part:
    """Beside the dense part: three norms more, a router with two scales."""
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    others = experts * 3 * hidden * inner + 4 * hidden + experts
    width = int(config.get("top_k_experts") or 1) * inner
    return Part((Linear(hidden, experts),), others=others, active_width=width)


def _is_sparse(family: str, config: dict[str, Any], layer: int) -> bool:
    if config.get("mlp_layer_types"):
        return bool(config["mlp_layer_types"][layer] == "sparse")
    if family == "gemma4_text":
        return bool(config["enable_moe_block"])
    if layer in (config.get("mlp_only_layers") or ()):
        return False
    if layer < int(config.get("first_k_dense_replace") or 0):
        return False
    return (layer + 1) % int(config.get("decoder_sparse_step") or 1) == 0


def num_experts(config: dict[str, Any]) -> int:
    """Experts of one sparse layer, 0 for a dense model."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return int(next((config[name] for name in names if config.get(name)), 0))
