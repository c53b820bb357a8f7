"""Several adapters over one base: which packed token passes through which.

The base model's products are computed for all tokens together; each adapter's two small ones for
its own tokens only. So requests for different adapters share a sampling step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from training_gym.spec.errors import EngineError, ModelError

BASE = "base"
"""Name under which the weights without any adapter are asked for."""


@dataclass(frozen=True)
class Share:
    """The tokens of one adapter."""

    adapter: str
    places: torch.Tensor | None
    """(n,) places in the packed row; None: all of it."""


@dataclass(frozen=True)
class Routing:
    """Who gets which of the packed tokens; those of no share pass the base alone."""

    shares: tuple[Share, ...]
    num_tokens: int


def routing(adapters: Sequence[str], lengths: Sequence[int], device: torch.device) -> Routing:
    """Of segments of these lengths, one after another, each with its adapter."""
    wanted = [name for name in dict.fromkeys(adapters) if name != BASE]
    total = sum(lengths)
    if len(set(adapters)) == 1:
        return Routing(tuple(Share(name, None) for name in wanted), total)
    owners = [name for name, n in zip(adapters, lengths, strict=True) for _ in range(n)]
    found = []
    for name in wanted:
        places = [place for place, owner in enumerate(owners) if owner == name]
        found.append(Share(name, torch.tensor(places, device=device)))
    return Routing(tuple(found), total)


class Router:
    """Takes over the adapted layers of a `peft` model."""

    def __init__(self) -> None:
        """No layer is taken over yet."""
        self.current: Routing | None = None
        """What is followed now; None: layers do what `peft` has them do."""

    def take_over(self, model: torch.nn.Module) -> None:
        """Make every adapted layer follow the routing; again where adapters have been added.

        Raises `ModelError` for adapters that are more than two small products.
        """
        from peft.tuners.lora import Linear, LoraLayer

        for path, module in model.named_modules():
            if not isinstance(module, LoraLayer):
                continue
            if not isinstance(module, Linear) or module.lora_variant or module.merged:
                raise ModelError(
                    f"the adapter of {path} is of a kind that runs alone only",
                    fix="use plain low-rank adapters of linear layers side by side",
                )
            own = functools.partial(type(module).forward, module)
            module.forward = functools.partial(_routed, module, own, self)

    @contextmanager
    def following(self, chosen: Routing) -> Iterator[None]:
        """Route what is computed inside."""
        before, self.current = self.current, chosen
        try:
            yield
        finally:
            self.current = before


def _routed(
    module: Any, own: Any, router: Router, x: torch.Tensor, *args: Any, **options: Any
) -> torch.Tensor:
    """A linear layer over packed tokens, (N, inputs) or (1, N, inputs)."""
    result: torch.Tensor
    chosen = router.current
    if chosen is None:
        result = own(x, *args, **options)
        return result
    if x.shape[-2] != chosen.num_tokens:
        raise EngineError(
            "a layer of this model sees some of the tokens only: it cannot mix adapters",
            fix="leave that layer out of target_modules",
        )
    result = module.base_layer(x, *args, **options)
    for share in () if module.disable_adapters else chosen.shares:
        if share.adapter not in module.lora_A:
            continue
        down, up = module.lora_A[share.adapter], module.lora_B[share.adapter]
        part = x if share.places is None else x.index_select(-2, share.places)
        part = module.lora_dropout[share.adapter](part.to(down.weight.dtype))
        change = (up(down(part)) * module.scaling[share.adapter]).to(result.dtype)
        if share.places is None:
            result = result + change
        else:
            result = result.index_add(-2, share.places, change)
    return result


class Change(NamedTuple):
    """What one adapter adds to a linear layer: scaling · up (down x)."""

    down: torch.Tensor
    """(rank, inputs)"""
    up: torch.Tensor
    """(outputs, rank)"""
    scaling: float


@dataclass(frozen=True)
class LinearParts:
    """A linear layer and what its active adapters add to it."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    changes: tuple[Change, ...] = ()


def linear_parts(module: Any) -> LinearParts | None:
    """Of a linear layer, adapted or not; None: it is none.

    Of a `peft` layer that is more than a linear layer and two small products: None, too.
    """
    if type(module) is torch.nn.Linear:
        return LinearParts(module.weight.detach(), module.bias)
    from peft.tuners.lora import Linear

    if not isinstance(module, Linear) or module.lora_variant:
        return None
    base: Any = module.base_layer
    changes = []
    if not module.merged and not module.disable_adapters:
        for name in module.active_adapters:
            if name not in module.lora_A:
                continue
            down: Any = module.lora_A[name]
            up: Any = module.lora_B[name]
            if up.bias is not None:
                return None
            changes.append(Change(down.weight.detach(), up.weight.detach(), module.scaling[name]))
    return LinearParts(base.weight.detach(), base.bias, tuple(changes))


def effective_weight(module: Any) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Weight and bias of a linear layer with what its active adapters add; None: it is none."""
    parts = linear_parts(module)
    if parts is None:
        return None
    weight = parts.weight
    for down, up, scaling in parts.changes:
        weight = weight + (up @ down) * scaling
    return weight, parts.bias
