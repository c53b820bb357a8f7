"""The attention of one layer, of every kind the families use, in numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

_QUERY_KEY_NORMS = frozenset(
    {"qwen3", "qwen3_moe", "gemma3_text", "qwen3_5_text", "qwen3_5_moe_text"}
)
_LINEAR_FAMILIES = frozenset({"qwen3_5_text", "qwen3_5_moe_text"})
_LATENT_FAMILIES = frozenset({"deepseek_v3", "glm4_moe_lite"})
_OUTPUT_BIAS_TOO = frozenset(
    {"llama", "qwen3", "qwen3_moe", "smollm3", "gemma3_text", "gpt_oss"} | _LINEAR_FAMILIES
)
_INPUT_BIAS_ONLY = frozenset({"glm4", "glm4_moe"})


class Linear(NamedTuple):
    """A linear layer."""

    inputs: int
    outputs: int
    biased: bool = False


class Part(NamedTuple):
    """A part of a layer."""

    linears: tuple[Linear, ...] = ()
    """Its linear layers, which adapters of all linear layers cover."""
    others: int = 0
    """Parameters outside of them: norms, experts, routers, convolutions."""
    cached: int = 0
    """Numbers kept per token while sampling."""
    state: int = 0
    """Numbers kept per sequence while sampling."""
    active_width: int = 0
    """Width of the feed-forward part that one token passes."""

    @property
    def num_parameters(self) -> int:
        """All its parameters."""
        return self.others + sum(
            linear.inputs * linear.outputs + (linear.outputs if linear.biased else 0)
            for linear in self.linears
        )

    @property
    def adapted_widths(self) -> int:
        """Inputs plus outputs of its linear layers."""
        return sum(linear.inputs + linear.outputs for linear in self.linears)


def attention_part(family: str, config: dict[str, Any], layer: int) -> Part:
    """What mixes tokens in one layer.

    Args:
        family: `model_type`.
        config: the configuration with defaults filled in.
        layer: number of the layer.
    """
    if family in _LATENT_FAMILIES:
        return _latent(config)
    if family in _LINEAR_FAMILIES and _kind(config, layer) == "linear_attention":
        return _gated_delta(config)
    if family == "gemma4_text":
        return _gemma4(config, layer)
    return _grouped(family, config)


def _kind(config: dict[str, Any], layer: int) -> str:
    if config.get("layer_types"):
        return str(config["layer_types"][layer])
    every = int(config.get("full_attention_interval") or 4)
    return "linear_attention" if (layer + 1) % every else "full_attention"


def _grouped(family: str, config: dict[str, Any]) -> Part:
    """Attention whose queries share keys in groups."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    knows_bias = family in _OUTPUT_BIAS_TOO | _INPUT_BIAS_ONLY
    biased = family == "qwen2" or (knows_bias and bool(config.get("attention_bias")))
    gate = queries if family in _LINEAR_FAMILIES else 0
    normed = family in _QUERY_KEY_NORMS or (family == "glm4_moe" and config.get("use_qk_norm"))
    sinks = config["num_attention_heads"] if family == "gpt_oss" else 0
    into = Linear(hidden, keys, biased)
    return Part(
        (
            Linear(hidden, queries + gate, biased),
            into,
            into,
            Linear(queries, hidden, biased and family in _OUTPUT_BIAS_TOO),
        ),
        others=sinks + (2 * head_dim if normed else 0),
        cached=2 * keys,
    )


def _latent(config: dict[str, Any]) -> Part:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).

    The sampler keeps keys and values expanded to all heads: the registered attention is handed
    those, not the latent they come from.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    values, latent = config["v_head_dim"], config["kv_lora_rank"]
    biased, rank = bool(config.get("attention_bias")), config.get("q_lora_rank")
    queries = heads * (nope + rope)
    if rank is None:
        into: tuple[Linear, ...] = (Linear(hidden, queries),)
    else:
        into = (Linear(hidden, rank, biased), Linear(rank, queries))
    return Part(
        (
            *into,
            Linear(hidden, latent + rope, biased),
            Linear(latent, heads * (nope + values)),
            Linear(heads * values, hidden, biased),
        ),
        others=latent + (rank or 0),
        cached=heads * (nope + rope + values),
    )


def _gated_delta(config: dict[str, Any]) -> Part:
    """Gated linear attention (arXiv:2412.06464) with a short convolution; two states are kept.

    One goes on with the sequence, one stays behind its prompt, for others to begin from.
    """
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    values, kernel = heads * value_dim, config["linear_conv_kernel_dim"]
    channels = 2 * config["linear_num_key_heads"] * key_dim + values
    return Part(
        (
            Linear(hidden, channels),
            Linear(hidden, values),
            Linear(hidden, heads),
            Linear(hidden, heads),
            Linear(values, hidden),
        ),
        others=channels * kernel + 2 * heads + value_dim,
        state=2 * (channels * (kernel - 1) + heads * key_dim * value_dim),
    )


def _gemma4(config: dict[str, Any], layer: int) -> Part:
    """Wide heads in global layers; the last layers attend to earlier ones' keys and values."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    is_global = _gemma4_kind(config, layer) == "full_attention"
    head_dim, key_heads = _gemma4_heads(config, layer, is_global)
    biased = bool(config.get("attention_bias"))
    into = Linear(hidden, heads * head_dim, biased)
    out = Linear(heads * head_dim, hidden, biased)
    if layer >= config["num_hidden_layers"] - config["num_kv_shared_layers"]:
        return Part((into, out), others=head_dim)
    keys = Linear(hidden, key_heads * head_dim, biased)
    same = is_global and config["attention_k_eq_v"]
    return Part(
        (into, keys, out) if same else (into, keys, keys, out),
        others=2 * head_dim,
        cached=2 * key_heads * head_dim,
    )


def _gemma4_kind(config: dict[str, Any], layer: int) -> str:
    """`full_attention` or `sliding_attention`; the last layer of a Gemma 4 is full."""
    if layer == config["num_hidden_layers"] - 1:
        return "full_attention"
    if config.get("layer_types"):
        return str(config["layer_types"][layer])
    return "sliding_attention" if (layer + 1) % 6 else "full_attention"


def _gemma4_heads(config: dict[str, Any], layer: int, is_global: bool) -> tuple[int, int]:
    """Width of a head and heads of keys; files say it by layer, or for all global ones."""
    head_dim, key_heads = config["head_dim"], config["num_key_value_heads"]
    by_layer = config.get("per_layer_config")
    if by_layer is not None:
        own = by_layer.get(str(layer), {})
        return own.get("head_dim", head_dim), own.get("num_key_value_heads", key_heads)
    if not is_global:
        return head_dim, key_heads
    fewer = config.get("num_global_key_value_heads") if config["attention_k_eq_v"] else None
    return config.get("global_head_dim", 512), fewer or key_heads
