"""Gated linear attention over packed tokens: every segment starts from its prefix's state.

Layers of this kind (Qwen3.5) have no keys and values to look back at. They carry a *state* from
token to token: the last inputs of a short convolution, and a matrix that the gated delta rule
updates (Yang et al. 2024, arXiv:2412.06464). The model's own forward runs over a packed row as if
it were one text; here the layer is called with a layout, segments of a like length are computed
side by side, and what state a segment starts from is the layout's business.

The projections, the convolution and the rule are the model's own functions, with whatever faster
kernels `transformers` finds for them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from training_gym.engines.local.recurrent_states import State, States, Wave

_PARTS = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "conv1d", "dt_bias", "A_log")
"""What makes a module a layer of this kind."""


class RecurrentLayout(Protocol):
    """A layout as these layers see it."""

    def waves(self, device: torch.device) -> Sequence[Wave]:
        """The segments in an order in which prefixes come before what follows them."""
        ...

    def states(self, layer: int) -> States:
        """The states of one layer."""
        ...


def install(model: torch.nn.Module) -> int:
    """Make the linear-attention layers of `model` take layouts; how many it has.

    Called without a layout they do what they did before. Repeating it changes nothing.
    """
    found = [m for m in model.modules() if all(hasattr(m, part) for part in _PARTS)]
    for module in found:
        if "forward" not in vars(module):
            own = functools.partial(type(module).forward, module)
            module.forward = functools.partial(_forward, module, own)
    return len(found)


def _forward(
    module: Any,
    own: Any,
    hidden_states: torch.Tensor,
    *args: Any,
    layout: Any = None,
    **options: Any,
) -> torch.Tensor:
    if layout is None:
        result: torch.Tensor = own(hidden_states, *args, **options)
        return result
    return mix(module, hidden_states, layout)


def mix(module: Any, hidden_states: torch.Tensor, layout: RecurrentLayout) -> torch.Tensor:
    """One layer over packed hidden states (1, N, hidden)."""
    inputs = _Inputs(
        _with_blank(module.in_proj_qkv(hidden_states)[0]),
        _with_blank(
            -module.A_log.float().exp()
            * F.softplus(module.in_proj_a(hidden_states)[0].float() + module.dt_bias)
        ),
        _with_blank(module.in_proj_b(hidden_states)[0].sigmoid()),
    )
    states = layout.states(int(module.layer_idx))
    waves = layout.waves(hidden_states.device)
    parts = []
    for wave in waves:
        state = states.before(wave)
        output, state = _run(module, inputs, wave, state, carry=states.wanted(wave))
        if state is not None:
            states.after(wave, state)
        parts.append(output.flatten(0, 1))
    mixed = _in_order(parts, waves)
    z = module.in_proj_z(hidden_states)[0].reshape(mixed.shape)
    head_dim = mixed.shape[-1]
    normed = module.norm(mixed.reshape(-1, head_dim), z.reshape(-1, head_dim))
    projected: torch.Tensor = module.out_proj(normed.reshape(*hidden_states.shape[:2], -1))
    return projected


@dataclass(frozen=True)
class _Inputs:
    """Of N packed tokens and a blank one behind them, which changes no state."""

    mixed: torch.Tensor
    """(N + 1, channels) queries, keys and values before the convolution."""
    decay: torch.Tensor
    """(N + 1, value heads) logarithm of what is kept of the state, float32."""
    beta: torch.Tensor
    """(N + 1, value heads) how much of it is overwritten."""


def _with_blank(values: torch.Tensor) -> torch.Tensor:
    return F.pad(values, (0, 0, 0, 1))


def _run(
    module: Any, inputs: _Inputs, wave: Wave, state: State | None, *, carry: bool
) -> tuple[torch.Tensor, State | None]:
    """One wave: outputs (B, L, value heads, value dim), and what its segments end with."""
    own = sys.modules[type(module).__module__]
    count, length = wave.tokens.shape
    new = _pick(inputs.mixed, wave.tokens).transpose(1, 2)
    width = module.conv1d.weight.shape[-1] - 1
    tail = new.new_zeros(count, new.shape[1], width) if state is None else state.tail
    context = torch.cat([tail.to(new.dtype), new], dim=2)
    convolved = own.causal_conv1d_fn(
        context,
        module.conv1d.weight.squeeze(1),
        module.conv1d.bias,
        activation=module.activation,
    )[..., width:].transpose(1, 2)
    query, key, value = torch.split(
        convolved, [module.key_dim, module.key_dim, module.value_dim], dim=-1
    )
    # The fused form for one token has no backward pass in some kernels.
    single = length == 1 and not torch.is_grad_enabled()
    rule = own.torch_recurrent_gated_delta_rule if single else own.torch_chunk_gated_delta_rule
    output, matrix = rule(
        query.reshape(count, length, -1, module.head_k_dim),
        key.reshape(count, length, -1, module.head_k_dim),
        value.reshape(count, length, -1, module.head_v_dim),
        g=_pick(inputs.decay, wave.tokens),
        beta=_pick(inputs.beta, wave.tokens),
        initial_state=None if state is None else state.matrix,
        output_final_state=carry,
        use_qk_l2norm_in_kernel=True,
    )
    if not carry:
        return output, None
    places = wave.lengths.view(-1, 1, 1) + torch.arange(width, device=new.device)
    ended = torch.gather(context, 2, places.expand(-1, context.shape[1], -1))
    return output, State(ended, matrix)


def _pick(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of `values` (N, W) at `places` (B, L): (B, L, W)."""
    return values.index_select(0, places.flatten()).view(*places.shape, -1)


def _in_order(parts: Sequence[torch.Tensor], waves: Sequence[Wave]) -> torch.Tensor:
    """Outputs of all waves, (·, heads, dim) each, back in the order of the packed tokens."""
    places = torch.cat([wave.tokens.flatten() for wave in waves])
    # Padding sorts behind the N tokens, each of which occurs once.
    order = torch.argsort(places, stable=True)
    total = sum(int(wave.lengths.sum()) for wave in waves)
    joined = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return joined.index_select(0, order[:total])
