"""Real models small enough for tests: random weights, a real tokenizer and a real chat template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.weights.quiet import quiet
from training_gym.spec.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, START_OF_TURN, END_OF_TURN)

CHAT_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\nTools: ' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}
{{- '<think>' + message.reasoning_content + '</think>' }}
{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""ChatML with tools and reasoning; a conversation's text is a prefix of its continuation's."""

_MIXTURE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LINEAR = {
    "head_dim": 16,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "full_attention_interval": 2,
}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
}
_GEMMA4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 32,
    "final_logit_softcapping": 30.0,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 150_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, **_MIXTURE},
    "qwen3_5_text": _LINEAR,
    "qwen3_5_moe_text": _LINEAR
    | {"num_experts": 4, "shared_expert_intermediate_size": 32, **_MIXTURE},
    "smollm3": {},
    "gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 32},
    "gemma4_text": _GEMMA4
    | {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "use_double_wide_mlp": True,
    },
    "gemma4_moe": _GEMMA4
    | {
        "model_type": "gemma4_text",
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    },
    "glm4": {"head_dim": 16},
    "glm4_moe": {"head_dim": 16, "n_routed_experts": 4, "use_qk_norm": True, **_MIXTURE},
    "glm4_moe_lite": _LATENT | _MIXTURE | {"n_routed_experts": 4},
    "deepseek_v3": _LATENT
    | _MIXTURE
    | {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
    "gpt_oss": {
        "head_dim": 16,
        "sliding_window": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": _YARN,
    },
}
"""`model_type` to what its configuration needs beside the sizes; `gemma4_moe` is the mixture form
of `gemma4_text`, which shares keys and values between its last layers."""

FAMILIES = tuple(_FAMILIES)
"""What `tiny_model` can write."""


def tiny_model(
    path: Path | str,
    family: str = "llama",
    *,
    seed: int = 0,
    chat_template: bool = True,
    tied: bool = True,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    max_context_tokens: int = 2048,
    extra_tokens: tuple[str, ...] = (),
) -> Path:
    """Write a model folder of about 0.1 M parameters; the same arguments give the same bits.

    Args:
        path: folder to write.
        family: one of `FAMILIES`.
        seed: what the weights are drawn from.
        chat_template: False makes a base model, which only completes texts.
        tied: whether input and output embeddings are one matrix.
        hidden_size: width, a multiple of `num_heads`.
        num_layers: decoder layers.
        num_heads: attention heads.
        num_kv_heads: heads of keys and values, a divisor of `num_heads`.
        max_context_tokens: longest sequence.
        extra_tokens: texts that are one token each, beside the 256 bytes and the special tokens.

    Returns:
        `path`.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if family not in _FAMILIES:
        raise ModelError(f"no tiny {family!r} model", fix=did_you_mean(family, _FAMILIES))
    folder = Path(path)
    tokenizer = byte_tokenizer(extra_tokens, max_context_tokens, chat_template=chat_template)
    config = _config(
        family,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=max_context_tokens,
        tie_word_embeddings=tied,
    )
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _config(family: str, **sizes: Any) -> PreTrainedConfig:
    from transformers import AutoConfig

    ids = {token: 256 + index for index, token in enumerate(SPECIAL_TOKENS)}
    values = {**sizes, **_FAMILIES[family]}
    if family.startswith("gemma4"):
        pairs = -(-values["num_hidden_layers"] // 2)
        values["layer_types"] = ["sliding_attention", "full_attention"] * pairs
        values["vocab_size_per_layer_input"] = values["vocab_size"]
    return AutoConfig.for_model(
        values.pop("model_type", family),
        bos_token_id=None,
        eos_token_id=ids[END_OF_TURN],
        pad_token_id=ids[END_OF_TEXT],
        **values,
    )


def byte_tokenizer(
    extra_tokens: tuple[str, ...], max_context_tokens: int, *, chat_template: bool
) -> PreTrainedTokenizerFast:
    """A fast tokenizer with one token per byte, so that any text encodes and comes back."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL_TOKENS])
    backend.add_tokens([AddedToken(t, normalized=False) for t in extra_tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE if chat_template else None,
        clean_up_tokenization_spaces=False,
        model_max_length=max_context_tokens,
    )
