"""The vocabulary's product over weights laid out once, with its derivative.

A plain product with the head rearranges its weight for the processor's kernel at every call, which
for a chunk of a few hundred rows takes as long as the arithmetic. The weights stay what they are
from one update to the next: one copy of them, as decoding keeps it (`prepacked`), serves all
chunks of a step. The way back needs no copy.
"""

from __future__ import annotations

from typing import Any

import torch

from training_gym.engines.local.prepacked import PackedLinear, available


class Projection:
    """y = x Wᵀ of a linear layer without bias, differentiable in x and W."""

    def __init__(self, module: torch.nn.Linear) -> None:
        """Of a module for which `is_projectable`; nothing is copied yet."""
        self._module = module
        self._packed: PackedLinear | None = None
        self._stamp: tuple[int, int] | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(n, outputs) of x (n, inputs), by the weights as they are now."""
        weight = self._module.weight
        stamp = weight.data_ptr(), weight._version
        if self._packed is None or stamp != self._stamp:
            self.release()  # before the new one is made: never both in memory
            self._packed, self._stamp = PackedLinear(weight), stamp
        result: torch.Tensor = _Product.apply(x, weight, self._packed)  # type: ignore[no-untyped-call]
        return result

    def release(self) -> None:
        """Forget the copy; the next product makes one anew."""
        self._packed = self._stamp = None


class _Product(torch.autograd.Function):
    """With ∂y = the gradient: ∂x = ∂y W, ∂W = ∂yᵀ x.

    Where the weight has a gradient already, from another chunk, the product is added to it at once:
    an array of the weight's size is neither made nor passed over a second time. That is what
    `backward` does with it in the end; who asks `torch.autograd.grad` for the weight's derivative
    clears its gradient first.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, packed: PackedLinear
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return packed(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        of_x = gradient @ weight if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_x, None, None
        if weight.is_leaf and weight.grad is not None:
            weight.grad.addmm_(gradient.T, x)
            return of_x, None, None
        return of_x, gradient.T @ x, None


def is_projectable(module: torch.nn.Module) -> bool:
    """Whether the module is a linear layer without bias whose weights can be packed."""
    return type(module) is torch.nn.Linear and module.bias is None and available(module.weight)
