"""Copies of the weights in the type that decoding computes in, renewed where they lie.

Under autocast a module reads its float32 weight, writes it in half precision and reads that, at
every step: five times the memory traffic of the product itself. A copy is cast once, as autocast
casts, so it holds the numbers that training multiplies with.

An adapter stays two small products beside its layer, as in training. Added to a weight in half
precision, most of what an adapter has learned in its first updates would be rounded away: a
weight of 0.02 has neighbours 0.0001 away.

The copies keep their addresses when they are renewed, so that recorded steps go on reading them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from training_gym.engines.local.arrangements import Applied, unknown_layer
from training_gym.engines.local.routing import LinearParts, linear_parts


class Copy(Protocol):
    """Something kept of the weights."""

    def renew(self) -> None:
        """Take up the weights as they are now."""
        ...


class DenseWeights:
    """Implements `Arrangement` by copies in `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Nothing is copied yet."""
        self._dtype = dtype
        self._copies: list[Copy] = []

    def linear(self, *modules: torch.nn.Module) -> DenseLinear:
        """See `Arrangement`."""
        made = DenseLinear(modules, self._dtype)
        self._copies.append(made)
        return made

    def gated(self, gate: torch.nn.Module, up: torch.nn.Module) -> Applied:
        """See `Arrangement`. Both in one product."""
        return functools.partial(_gated, self.linear(gate, up))

    def head_norms(
        self, query: torch.nn.Module, key: torch.nn.Module, num_heads: int, num_key_heads: int
    ) -> Applied:
        """See `Arrangement`. Both in one pass."""
        made = HeadNorms(query, key, num_heads, num_key_heads)
        self._copies.append(made)
        return made

    def renew(self) -> bool:
        """See `Arrangement`."""
        for copy in self._copies:
            copy.renew()
        return True


class DenseLinear:
    """Implements `Linear` over copies in one type; x is cast to it."""

    def __init__(self, modules: Sequence[torch.nn.Module], dtype: torch.dtype) -> None:
        """Copy the weights of `modules`, and what their active adapters multiply with."""
        self._modules = modules
        parts = [_parts(module) for module in modules]
        like = parts[0].weight
        outputs, inputs = sum(len(part.weight) for part in parts), like.shape[1]
        rank = sum(len(change.down) for part in parts for change in part.changes)
        with torch.inference_mode(False):  # who made them in it could not renew them outside
            self._weight = like.new_empty(outputs, inputs, dtype=dtype)
            self._bias = None if parts[0].bias is None else like.new_empty(outputs, dtype=dtype)
            self._down = like.new_empty(rank, inputs, dtype=dtype)
            # Of each adapter in its own layer's rows only; the rest stays zero.
            self._up = like.new_zeros(outputs, rank, dtype=dtype)
        self._is_adapted = rank > 0
        self.renew()

    @torch.no_grad()
    def renew(self) -> None:
        """See `Copy`."""
        row = column = 0
        for module in self._modules:
            part = _parts(module)
            rows = slice(row, row + len(part.weight))
            self._weight[rows] = part.weight
            if self._bias is not None and part.bias is not None:
                self._bias[rows] = part.bias
            for down, up, scaling in part.changes:
                columns = slice(column, column + len(down))
                self._down[columns] = down
                self._up[rows, columns] = up * scaling
                column = columns.stop
            row = rows.stop

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`; the products are in the type of the copies."""
        x = x.to(self._weight.dtype)
        product = F.linear(x, self._weight, self._bias)
        if self._is_adapted:
            product = torch.addmm(product, x @ self._down.T, self._up.T)
        return product

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        return other + self(x)


class HeadNorms:
    """Norms of queries and keys, whose heads have weights of two kinds."""

    def __init__(self, query: Any, key: Any, num_heads: int, num_key_heads: int) -> None:
        """Copy the weights of the norms `query` and `key`."""
        self._norms = query, key
        self._num_heads = num_heads
        like: torch.Tensor = query.weight.detach()
        with torch.inference_mode(False):
            self._scales = like.new_empty(num_heads + num_key_heads, len(like))
        self.renew()

    @torch.no_grad()
    def renew(self) -> None:
        """See `Copy`."""
        query, key = self._norms
        self._scales[: self._num_heads] = query.weight
        self._scales[self._num_heads :] = key.weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (n, heads, head dim); the result is in the type of the norms' weights.

        Between norm and weight it is rounded to the type of x, as `transformers` does.
        """
        return F.rms_norm(x, (x.shape[-1],), None, self._norms[0].variance_epsilon) * self._scales


def _gated(both: DenseLinear, x: torch.Tensor) -> torch.Tensor:
    gate, up = both(x).chunk(2, dim=-1)
    return F.silu(gate) * up


def _parts(module: torch.nn.Module) -> LinearParts:
    found = linear_parts(module)
    if found is None:
        raise unknown_layer(module)
    return found
