"""Parts of plain layers with their derivatives written out: fewer passes over memory, less kept.

Between the matrix products a layer reads and writes memory, and what autograd keeps for the way
back is most of a step's memory. A norm written out operation by operation keeps its input twice
and passes over it eight times; a gated activation keeps four arrays where two suffice.
`install` replaces the modules' forwards while gradients are wanted; values stay the same up to
rounding, which `Network.check_parity` and the gradient tests of every family hold it to.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F


class RootMeanSquareNorm(torch.autograd.Function):
    """y = w · x / √(mean(x²) + ε) over the last dimension; keeps x and one number a row.

    With n = x / √(…) and ∂y = the gradient: ∂x = (w ∂y - n · mean(n w ∂y)) / √(…), ∂w = Σ n ∂y.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """See the class."""
        squares: torch.Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        scale = squares.div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        result: torch.Tensor = (x * scale).mul_(weight)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """See the class."""
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        of_weight = None
        if ctx.needs_input_grad[1]:
            product = gradient * normed
            of_weight = product.flatten(0, -2).sum(dim=0)
        weighted = gradient * weight
        mean = (weighted * normed).mean(dim=-1, keepdim=True)
        return weighted.sub_(normed.mul_(mean)).mul_(scale), of_weight, None


class GatedUnit(torch.autograd.Function):
    """silu(g) · u; keeps g and u only and computes silu(g) again on the way back."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """See the class."""
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """See the class."""
        gate, up = ctx.saved_tensors
        of_gate = torch.ops.aten.silu_backward(gradient * up, gate)
        return of_gate, F.silu(gate).mul_(gradient)


class GatedProjection(torch.autograd.Function):
    """(silu(g) · u) Wᵀ; keeps g and u only: what W is multiplied with is computed again."""

    @staticmethod
    def forward(
        ctx: Any, gate: torch.Tensor, up: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """See the class."""
        ctx.save_for_backward(gate, up, weight)
        return F.linear(F.silu(gate).mul_(up), weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """See the class."""
        gate, up, weight = ctx.saved_tensors
        activated = F.silu(gate)
        of_weight = None
        if ctx.needs_input_grad[2]:
            of_weight = gradient.flatten(0, -2).T @ (activated * up).flatten(0, -2)
        of_product = gradient @ weight
        of_up = activated.mul_(of_product)
        return torch.ops.aten.silu_backward(of_product.mul_(up), gate), of_up, of_weight


def install(causal_lm: Any) -> None:
    """Use them in every layer of a plain model (`decoding.is_plain`) in float32."""
    modules = [causal_lm.base_model.norm]
    for layer in causal_lm.base_model.layers:
        modules += [layer.input_layernorm, layer.post_attention_layernorm]
        layer.mlp.forward = functools.partial(_gated, layer.mlp)
    for module in modules:
        module.forward = functools.partial(_normalised, module)


def remove(causal_lm: Any) -> None:
    """Give the modules their own forwards back."""
    for module in causal_lm.base_model.modules():
        replaced = vars(module).get("forward")
        if isinstance(replaced, functools.partial) and replaced.func in (_gated, _normalised):
            del module.forward


def _gated(module: Any, x: torch.Tensor) -> torch.Tensor:
    gate, up, down = module.gate_proj(x), module.up_proj(x), module.down_proj
    result: torch.Tensor
    if type(down) is torch.nn.Linear and down.bias is None:
        result = GatedProjection.apply(gate, up, down.weight)
    else:  # an adapter needs its own input
        result = down(GatedUnit.apply(gate, up))  # type: ignore[no-untyped-call]
    return result


def _normalised(module: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = RootMeanSquareNorm.apply(  # type: ignore[no-untyped-call]
        x, module.weight, module.variance_epsilon
    )
    return result
