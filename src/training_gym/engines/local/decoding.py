"""One more token for every row, through plain layers, with as little around the products as can be.

At a few rows a step, a model's own modules spend as much time between the matrix products as in
them. Models whose layers are those of Llama (root mean square norms before attention and before a
gated SiLU, rotary or no positions) are therefore decoded here, over weights laid out for it
(`arrangements`): query, key and value in one product, activations and residuals with the products.
Norms, positions and the sum over layers are float32 whatever the products are in, as they are in
the modules under autocast.

Everything else, and whatever `Network.check_parity` finds to differ, runs through the modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from training_gym.engines.local.arrangements import Applied, Arrangement, Linear, normalised
from training_gym.engines.local.kernels import LayerOptions
from training_gym.engines.local.routing import linear_parts
from training_gym.planning.memory import PLAIN_FAMILIES

PLAIN_TYPES = PLAIN_FAMILIES
"""`model_type`s whose layers are built from the parts this module knows."""


class DecodeLayout(Protocol):
    """Where a step's tokens belong."""

    def decode(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """Attend with one token a row: query (n, H, D), key and value (n, K, D); (n, H, D)."""
        ...


@dataclass(frozen=True)
class PlainLayer:
    """One layer, its weights laid out."""

    options: LayerOptions
    input_norm: torch.nn.Module
    query_key_value: Linear
    head_norms: Applied | None
    rotates: bool
    """Whether positions enter; a few layers of SmolLM3 know none."""
    output: Linear
    inner_norm: torch.nn.Module
    gated: Applied
    down: Linear


@dataclass(frozen=True)
class Stamp:
    """By what is seen that weights have changed."""

    adapters: tuple[object, ...]
    """Which are active."""
    addresses: tuple[int, ...]
    """Where each weight lies."""
    versions: tuple[int, ...]
    """How often each was changed."""


class Decoder:
    """Computes decoding steps of a plain model; takes up its weights when they have changed."""

    def __init__(self, causal_lm: Any, arrange: Callable[[], Arrangement]) -> None:
        """Of a model that `is_plain`; `arrange` makes what lays its weights out."""
        self._backbone = causal_lm.base_model
        self._causal_lm = causal_lm
        self._head_module = causal_lm.get_output_embeddings()
        config = causal_lm.config
        self._num_heads: int = config.num_attention_heads
        self._num_key_heads: int = config.num_key_value_heads
        self._arrange = arrange
        self._arrangement: Arrangement | None = None
        self._layers: list[PlainLayer] = []
        self._head: Linear | None = None
        self._adapted: list[Any] = []
        self._weights: list[tuple[dict[str, Any], str]] = []
        self._stamp: Stamp | None = None
        self.layouts = 0
        """Rises whenever what a step reads may lie elsewhere than before."""

    @property
    def holds_copies(self) -> bool:
        """Whether weights are laid out in memory."""
        return self._arrangement is not None

    def logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: DecodeLayout
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after token `ids[i]` at `positions[i]` of row i, in float32."""
        self.prepare()
        return self.compute(ids, positions, layout).float()

    def compute(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: DecodeLayout
    ) -> torch.Tensor:
        """`logits` by the weights as they were when last prepared, in the type of products."""
        assert self._head is not None, "prepared"
        hidden = self._backbone.embed_tokens(ids)
        cos, sin = self._backbone.rotary_emb(hidden, positions.unsqueeze(0))
        half = sin.shape[-1] // 2
        signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        rotation = cos[0].unsqueeze(1), signed.unsqueeze(1)
        for layer in self._layers:
            hidden = self._layer(layer, hidden, rotation, layout)
        return self._head(normalised(hidden, self._backbone.norm))

    def prepare(self) -> None:
        """Take up the weights if they have changed since."""
        stamp = None if self._stamp is None else self._stamped()
        if stamp is not None and stamp == self._stamp:
            return
        if stamp is None or not self._renewed(stamp):
            self._build()
        self._stamp = self._stamped()

    def outdate(self) -> None:
        """The weights have changed in a way that torch does not count."""
        if self._stamp is not None:
            self._stamp = Stamp(self._stamp.adapters, self._stamp.addresses, ())

    def release(self) -> None:
        """Forget what is laid out; the next step lays out anew."""
        self._layers, self._head, self._arrangement = [], None, None
        self._weights, self._adapted, self._stamp = [], [], None
        self.layouts += 1

    def _layer(
        self,
        layer: PlainLayer,
        hidden: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        layout: DecodeLayout,
    ) -> torch.Tensor:
        num_rows, num_heads, num_key_heads = len(hidden), self._num_heads, self._num_key_heads
        mixed = layer.query_key_value(normalised(hidden, layer.input_norm))
        mixed = mixed.view(num_rows, num_heads + 2 * num_key_heads, -1)
        rotated, value = torch.split(mixed, [num_heads + num_key_heads, num_key_heads], dim=1)
        if layer.head_norms is not None:
            rotated = layer.head_norms(rotated)
        if layer.rotates:
            cos, signed_sin = rotation
            rotated = rotated.to(cos.dtype)
            swapped = torch.roll(rotated, rotated.shape[-1] // 2, dims=-1)
            rotated = torch.addcmul(rotated * cos, swapped, signed_sin)
        rotated = rotated.to(value.dtype)
        query, key = torch.split(rotated, [num_heads, num_key_heads], dim=1)
        attended = layout.decode(query, key, value, layer.options)
        hidden = layer.output.plus(attended.reshape(num_rows, -1), hidden)
        return layer.down.plus(layer.gated(normalised(hidden, layer.inner_norm)), hidden)

    def _renewed(self, stamp: Stamp) -> bool:
        """Whether the weights could be taken up where they are laid out."""
        before, arrangement = self._stamp, self._arrangement
        if before is None or arrangement is None:
            return False
        moved = (before.adapters, before.addresses) != (stamp.adapters, stamp.addresses)
        return not moved and arrangement.renew()

    def _build(self) -> None:
        self.release()  # before the new ones are made: never both in memory
        arrangement = self._arrange()
        self._layers = [self._laid_out(arrangement, module) for module in self._backbone.layers]
        self._head = arrangement.linear(self._head_module)
        modules = list(self._causal_lm.modules())
        self._adapted = [module for module in modules if hasattr(module, "lora_A")]
        # Their dictionaries tell also who got another parameter, and are looked at in every step.
        self._weights = [(m._parameters, name) for m in modules for name in m._parameters]
        self._arrangement = arrangement

    def _laid_out(self, arrangement: Arrangement, module: Any) -> PlainLayer:
        attention, mlp = module.self_attn, module.mlp
        window = getattr(attention, "sliding_window", None)
        if attention.config.model_type == "mistral":  # whose layers ask the configuration
            window = attention.config.sliding_window
        query_norm, key_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        head_norms = None
        if query_norm is not None and key_norm is not None:
            heads = self._num_heads, self._num_key_heads
            head_norms = arrangement.head_norms(query_norm, key_norm, *heads)
        return PlainLayer(
            options=LayerOptions(attention.layer_idx, attention.scaling, window=window),
            input_norm=module.input_layernorm,
            query_key_value=arrangement.linear(
                attention.q_proj, attention.k_proj, attention.v_proj
            ),
            head_norms=head_norms,
            rotates=bool(getattr(attention, "use_rope", True)),
            output=arrangement.linear(attention.o_proj),
            inner_norm=module.post_attention_layernorm,
            gated=arrangement.gated(mlp.gate_proj, mlp.up_proj),
            down=arrangement.linear(mlp.down_proj),
        )

    def _stamped(self) -> Stamp:
        weights = [held[name] for held, name in self._weights if held[name] is not None]
        return Stamp(
            tuple(
                (tuple(module.active_adapters), module.disable_adapters, module.merged)
                for module in self._adapted
            ),
            tuple(weight.data_ptr() for weight in weights),
            tuple(weight._version for weight in weights),
        )


def is_plain(causal_lm: Any) -> bool:
    """Whether the model's layers are of the plain kind, and their weights are float32."""
    config = causal_lm.config
    return (
        config.model_type in PLAIN_TYPES
        and getattr(config, "hidden_act", None) == "silu"
        and causal_lm.get_input_embeddings().weight.dtype == torch.float32
        and all(linear_parts(m) is not None for m in _linear_modules(causal_lm))
    )


def _linear_modules(causal_lm: Any) -> list[torch.nn.Module]:
    found = [causal_lm.get_output_embeddings()]
    for layer in causal_lm.base_model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        found += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        found += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return found
