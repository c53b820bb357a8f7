"""Linear layers whose weights are laid out once for the processor's matrix kernel.

A decoding step multiplies every weight with a few rows only. A plain product then spends most of
its time rearranging the weight for its kernel, anew at every step: on two cores and 4 to 32 rows
of SmolLM2-135M that is half to three quarters of a step. oneDNN keeps the arrangement.

The copies cost as much memory as the weights. They are made of what the weights were: whoever
changes the weights makes new ones (`decoding.Decoder` watches the weights' versions).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F

ROWS_HINT = 32
"""How many rows the arrangement is chosen for; others are computed in it, too."""

SMALLEST_PACKED = 1 << 17
"""Entries of the smallest weight worth it. Smaller ones lie in the processor's nearest caches, and
a plain product with 32 rows takes 15 to 35 µs, where a call of the other kernel takes 60 to 75."""

_OPS: Any = torch.ops.mkldnn


def available(weight: torch.Tensor) -> bool:
    """Whether weights like this one can be packed: float32 on a CPU that has oneDNN."""
    with_one_dnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and with_one_dnn
        and hasattr(_OPS, "_reorder_linear_weight")
        and hasattr(_OPS, "_linear_pointwise")
    )


class PackedLinear:
    """y = x Wᵀ + b for x (n, inputs), in float32, without gradients."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Copy `weight` (outputs, inputs); `bias` (outputs,) is used as it is."""
        weight = weight.detach()
        self._plain = weight.numel() < SMALLEST_PACKED
        self._weight = weight.T.contiguous() if self._plain else _packed(weight)
        self._bias = None if bias is None else bias.detach()

    def __call__(
        self, x: torch.Tensor, activation: Literal["none", "swish"] = "none"
    ) -> torch.Tensor:
        """The product, through the activation."""
        if self._plain:
            product = self._product(x)
            return product if activation == "none" else F.silu(product, inplace=True)
        result: torch.Tensor = _OPS._linear_pointwise(
            x, self._weight, self._bias, activation, [], ""
        )
        return result

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product plus `other`, of the result's shape."""
        if self._plain and self._bias is None:
            return torch.addmm(other, x, self._weight)
        return self._product(x).add_(other) if self._plain else self._with(x, other, "add")

    def times(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product times `other`, entry by entry."""
        return self._product(x).mul_(other) if self._plain else self._with(x, other, "mul")

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        if self._bias is None:
            return x @ self._weight
        return torch.addmm(self._bias, x, self._weight)

    def _with(self, x: torch.Tensor, other: torch.Tensor, operation: str) -> torch.Tensor:
        result: torch.Tensor = _OPS._linear_pointwise.binary(
            x, other, self._weight, self._bias, operation
        )
        return result


def _packed(weight: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _OPS._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
    return result
