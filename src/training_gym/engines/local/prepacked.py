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

ROWS_HINT = 32
"""How many rows the arrangement is chosen for; others are computed in it, too."""

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
        self._weight = _OPS._reorder_linear_weight(weight.detach().contiguous(), ROWS_HINT)
        self._bias = None if bias is None else bias.detach()

    def __call__(
        self, x: torch.Tensor, activation: Literal["none", "swish"] = "none"
    ) -> torch.Tensor:
        """The product, through the activation."""
        result: torch.Tensor = _OPS._linear_pointwise(
            x, self._weight, self._bias, activation, [], ""
        )
        return result

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product plus `other`, of the result's shape."""
        return self._with(x, other, "add")

    def times(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product times `other`, entry by entry."""
        return self._with(x, other, "mul")

    def _with(self, x: torch.Tensor, other: torch.Tensor, operation: str) -> torch.Tensor:
        result: torch.Tensor = _OPS._linear_pointwise.binary(
            x, other, self._weight, self._bias, operation
        )
        return result
