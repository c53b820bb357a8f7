"""One more token for every row, through plain layers, with as little around the products as can be.

At a few rows a step, a model's own modules spend as much time between the matrix products as in
them. Models whose layers are those of Llama (root mean square norms before attention and before a
gated SiLU, rotary or no positions) are therefore decoded here: query, key and value in one
product of packed weights, activations and residuals within the products. An adapter is added to
the weights when they are packed, so that it costs nothing per token.

Everything else, and whatever `Network.check_parity` finds to differ, runs through the modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from training_gym.engines.local.kernels import LayerOptions
from training_gym.engines.local.prepacked import PackedLinear, available
from training_gym.engines.local.routing import effective_weight
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.spec.errors import EngineError

PLAIN_TYPES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""`model_type`s whose layers are built from the parts this module knows."""


@dataclass(frozen=True)
class PlainLayer:
    """One layer's weights, packed."""

    options: LayerOptions
    input_norm: torch.nn.Module
    query_key_value: PackedLinear
    query_norm: torch.nn.Module | None
    key_norm: torch.nn.Module | None
    rotates: bool
    """Whether positions enter; a few layers of SmolLM3 know none."""
    output: PackedLinear
    inner_norm: torch.nn.Module
    gate: PackedLinear
    up: PackedLinear
    down: PackedLinear


Stamp = tuple[tuple[object, ...], ...]
"""Where each weight lies, how often it was changed, and which adapters are active."""


class Decoder:
    """Computes decoding steps of a plain model; packs its weights when they have changed."""

    def __init__(self, causal_lm: Any) -> None:
        """Of a model that `is_plain`."""
        self._model = causal_lm
        self._backbone = causal_lm.base_model
        self._head_module = causal_lm.get_output_embeddings()
        config = causal_lm.config
        self._num_heads: int = config.num_attention_heads
        self._num_key_heads: int = config.num_key_value_heads
        self._layers: list[PlainLayer] = []
        self._head: PackedLinear | None = None
        self._adapted: list[Any] = []
        self._stamp: Stamp | None = None

    def logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: SlotLayout
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after token `ids[i]` at `positions[i]` of row i."""
        self._pack_if_changed()
        assert self._head is not None
        hidden = self._backbone.embed_tokens(ids)
        cos, sin = self._backbone.rotary_emb(hidden, positions.unsqueeze(0))
        half = sin.shape[-1] // 2
        signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        rotation = cos[0].unsqueeze(1), signed.unsqueeze(1)
        for layer in self._layers:
            hidden = self._layer(layer, hidden, rotation, layout)
        return self._head(_normalised(hidden, self._backbone.norm))

    def release(self) -> None:
        """Forget the packed weights; the next step packs anew."""
        self._layers, self._head, self._stamp = [], None, None

    def _layer(
        self,
        layer: PlainLayer,
        hidden: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        layout: SlotLayout,
    ) -> torch.Tensor:
        num_rows, num_heads, num_key_heads = len(hidden), self._num_heads, self._num_key_heads
        mixed = layer.query_key_value(_normalised(hidden, layer.input_norm))
        mixed = mixed.view(num_rows, num_heads + 2 * num_key_heads, -1)
        rotated, value = torch.split(mixed, [num_heads + num_key_heads, num_key_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = torch.split(rotated, [num_heads, num_key_heads], dim=1)
            parts = [_normalised(query, layer.query_norm), _normalised(key, layer.key_norm)]
            rotated = torch.cat(parts, dim=1)
        if layer.rotates:
            cos, signed_sin = rotation
            swapped = torch.roll(rotated, rotated.shape[-1] // 2, dims=-1)
            rotated = torch.addcmul(rotated * cos, swapped, signed_sin)
        query, key = torch.split(rotated, [num_heads, num_key_heads], dim=1)
        attended = layout.decode(query, key, value, layer.options)
        hidden = layer.output.plus(attended.reshape(num_rows, -1), hidden)
        normed = _normalised(hidden, layer.inner_norm)
        gated = layer.up.times(normed, layer.gate(normed, "swish"))
        return layer.down.plus(gated, hidden)

    def _pack_if_changed(self) -> None:
        if self._stamp is not None and self._stamp == self._stamped():
            return
        self.release()  # before the new ones are made: never both in memory
        self._layers = [_packed_layer(module) for module in self._backbone.layers]
        self._head = _packed(self._head_module)
        self._adapted = [m for m in self._backbone.modules() if hasattr(m, "lora_A")]
        self._stamp = self._stamped()

    def _stamped(self) -> Stamp:
        weights = [(p.data_ptr(), p._version) for p in self._model.parameters()]
        adapters = [
            (tuple(module.active_adapters), module.disable_adapters, module.merged)
            for module in self._adapted
        ]
        return *weights, *adapters


def is_plain(causal_lm: Any) -> bool:
    """Whether the model's layers are of the plain kind, and its weights can be packed."""
    config = causal_lm.config
    return (
        config.model_type in PLAIN_TYPES
        and getattr(config, "hidden_act", None) == "silu"
        and available(causal_lm.get_input_embeddings().weight)
        and all(effective_weight(m) is not None for m in _linear_modules(causal_lm))
    )


def _linear_modules(causal_lm: Any) -> list[torch.nn.Module]:
    found = [causal_lm.get_output_embeddings()]
    for layer in causal_lm.base_model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        found += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        found += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return found


def _packed_layer(module: Any) -> PlainLayer:
    attention, mlp = module.self_attn, module.mlp
    window = getattr(attention, "sliding_window", None)
    if attention.config.model_type == "mistral":  # whose layers ask the configuration
        window = attention.config.sliding_window
    return PlainLayer(
        options=LayerOptions(layer=attention.layer_idx, scaling=attention.scaling, window=window),
        input_norm=module.input_layernorm,
        query_key_value=_packed(attention.q_proj, attention.k_proj, attention.v_proj),
        query_norm=getattr(attention, "q_norm", None),
        key_norm=getattr(attention, "k_norm", None),
        rotates=bool(getattr(attention, "use_rope", True)),
        output=_packed(attention.o_proj),
        inner_norm=module.post_attention_layernorm,
        gate=_packed(mlp.gate_proj),
        up=_packed(mlp.up_proj),
        down=_packed(mlp.down_proj),
    )


def _packed(*modules: torch.nn.Module) -> PackedLinear:
    """Layers that read the same, as one; all have a bias, or none has."""
    weights, biases = [], []
    for module in modules:
        found = effective_weight(module)
        if found is None:
            raise EngineError(
                f"a layer of kind {type(module).__name__} was put into the model while it samples",
                fix="use plain low-rank adapters of linear layers",
            )
        weights.append(found[0])
        biases += [] if found[1] is None else [found[1]]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return PackedLinear(weight, torch.cat(biases) if biases else None)


def _normalised(x: torch.Tensor, norm: Any) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)
