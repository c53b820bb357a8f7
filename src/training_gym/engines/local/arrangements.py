"""How decoding lays the weights of plain layers out: one seam, two sides.

`PackedWeights` arranges float32 for the matrix kernel of a CPU; `dense.DenseWeights` keeps copies
in the type that a step computes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from training_gym.engines.local.prepacked import PackedLinear
from training_gym.engines.local.routing import effective_weight
from training_gym.spec.errors import EngineError

Applied = Callable[[torch.Tensor], torch.Tensor]
"""What a part of a layer makes of its input."""


class Linear(Protocol):
    """y = x Wᵀ + b of linear layers that read the same, as one."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The products (n, outputs) of x (n, inputs), one layer's after the other's."""
        ...

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The products plus `other`, in the type of `other`."""
        ...


class Arrangement(Protocol):
    """Makes the parts of layers from a model's modules, as they are when it is asked."""

    def linear(self, *modules: torch.nn.Module) -> Linear:
        """Layers that read the same, as one; all have a bias, or none has."""
        ...

    def gated(self, gate: torch.nn.Module, up: torch.nn.Module) -> Applied:
        """silu(gate(x)) · up(x)."""
        ...

    def head_norms(
        self, query: torch.nn.Module, key: torch.nn.Module, num_heads: int, num_key_heads: int
    ) -> Applied:
        """Queries' and keys' norms, of x (n, num_heads + num_key_heads, head dim)."""
        ...

    def renew(self) -> bool:
        """Take up weights that have changed in place; False: what was made has to be made anew."""
        ...


class PackedWeights:
    """Implements `Arrangement` by `PackedLinear`; adapters are added to the weights."""

    def linear(self, *modules: torch.nn.Module) -> PackedLinear:
        """See `Arrangement`."""
        weights, biases = [], []
        for module in modules:
            found = effective_weight(module)
            if found is None:
                raise unknown_layer(module)
            weights.append(found[0])
            biases += [] if found[1] is None else [found[1]]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        return PackedLinear(weight, torch.cat(biases) if biases else None)

    def gated(self, gate: torch.nn.Module, up: torch.nn.Module) -> Applied:
        """See `Arrangement`."""
        gate_product, up_product = self.linear(gate), self.linear(up)
        return lambda x: up_product.times(x, gate_product(x, "swish"))

    def head_norms(
        self, query: torch.nn.Module, key: torch.nn.Module, num_heads: int, num_key_heads: int
    ) -> Applied:
        """See `Arrangement`."""

        def both(x: torch.Tensor) -> torch.Tensor:
            queries, keys = torch.split(x, [num_heads, num_key_heads], dim=1)
            return torch.cat([normalised(queries, query), normalised(keys, key)], dim=1)

        return both

    def renew(self) -> bool:
        """See `Arrangement`. An arranged weight cannot be written to."""
        return False


def normalised(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """The root mean square norm of the last dimension, as a module of a plain model computes it."""
    return F.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def unknown_layer(module: torch.nn.Module) -> EngineError:
    """Says that a layer is neither linear nor a plain adapter of one."""
    return EngineError(
        f"a layer of kind {type(module).__name__} was put into the model while it samples",
        fix="use plain low-rank adapters of linear layers",
    )
