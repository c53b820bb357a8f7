"""The way in which packed sequences attend: by one kernel where it is proven here, else in parts.

A compiled kernel depends on the GPU, its driver and two compilers. It is taken only after it gave,
on this machine and in every layer of the loaded model, what torch's own attention gives, and the
same gradients. Where it does not, or raises, now or at a later shape, that is said once and costs
time, never what is learned.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from training_gym.engines.local.attention import Layout, PackedLayout, Segment
from training_gym.engines.local.flexible import FlexibleAttention, FlexibleLayout, Kernel
from training_gym.engines.local.kernels import LayerOptions

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, LayerOptions], torch.Tensor]
"""`Layout.attention`."""

NEAR_FACTOR = 3.0
"""The kernel is at most so many times as far from float64 as torch's own attention is,"""

NEAR_LEAST, NEAR_LEAST_HALF = 1e-4, 1e-2
"""and so much more, in float32 and in half precision: parts of the norm of what is compared."""

TRIED = (
    # More than a block, siblings behind a prefix, one behind two, one alone; two different shapes,
    # so that the compiler has to make a kernel for any.
    (
        Segment(0, 140),
        Segment(140, 70, (0,), 140),
        Segment(210, 9, (0,), 140),
        Segment(219, 60, (0, 140), 210),
        Segment(279, 31),
    ),
    (Segment(0, 20), Segment(20, 33, (0,), 20), Segment(53, 40, (0,), 20)),
)
"""Batches on which the kernel is compared."""


class PackedPath:
    """What computes the attention of packed sequences."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        """By `kernel`; None: by torch's attention, one batch of equal segments after another."""
        self._kernel = kernel

    @property
    def name(self) -> str:
        """`flex_attention` or `scaled_dot_product_attention`."""
        return "scaled_dot_product_attention" if self._kernel is None else "flex_attention"

    @property
    def by_kernel(self) -> bool:
        """Whether one kernel computes them."""
        return self._kernel is not None

    def over(self, layout: Layout) -> Layout:
        """The layout of a pass, computed in this way if it is a packed one."""
        if self._kernel is None or not isinstance(layout, PackedLayout):
            return layout
        flexible = FlexibleAttention(layout.segments, self._kernel)

        def attention(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
        ) -> torch.Tensor:
            if self._kernel is not None:
                try:
                    return flexible(query, key, value, options)
                except torch.OutOfMemoryError:
                    raise  # the other way takes no less
                except Exception as error:  # noqa: BLE001 - boundary: compilers raise anything
                    self.leave(f"it fails ({_first_line(error)})")
            return layout.attention(query, key, value, options)

        return FlexibleLayout(layout, attention)

    def leave(self, why: str) -> None:
        """Compute in parts from now on, and say so."""
        self._kernel = None
        print(  # noqa: T201 - becomes a log record
            f"packed sequences attend by {self.name} instead of flex_attention, which is slower: "
            f"{why}",
            file=sys.stderr,
            flush=True,
        )


class Passes(Protocol):
    """A network as far as its passes are asked for."""

    vocab_size: int

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        ...

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Last hidden states (N, hidden) of N packed tokens."""
        ...


def proven_path(network: Passes, kernels: Sequence[Kernel]) -> PackedPath:
    """By the first of `kernels` that computes what torch's attention computes.

    In every layer of `network`, forward and backward. Without any it is said why the last was not
    taken.
    """
    path = PackedPath()
    for kernel in kernels:
        path = PackedPath(kernel)
        why = _refuted(network, kernel)
        if not why:
            return path
    if path.by_kernel:
        path.leave(why)
    return path


def _refuted(network: Passes, kernel: Kernel) -> str:
    """Why the kernel is not taken; empty: it is."""
    for segments in TRIED:
        compared = _Compared(PackedLayout(segments), FlexibleAttention(segments, kernel))
        count = sum(segment.length for segment in segments)
        ids = torch.arange(count, device=network.device) * 7 % network.vocab_size
        spans = [range(s.prefix_length, s.prefix_length + s.length) for s in segments]
        positions = torch.tensor([p for span in spans for p in span], device=network.device)
        network.hidden(ids, positions, compared)
        if compared.why:
            return compared.why
    return ""


class _Compared:
    """Implements `Layout`: computes in parts, and beside it by the kernel, there and back."""

    def __init__(self, packed: PackedLayout, flexible: Attend) -> None:
        self.waves, self.states = packed.waves, packed.states
        self.why = ""
        """What differs; empty: nothing does."""
        self._packed = packed
        self._flexible = flexible

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        if not self.why:
            try:
                self.why = self._compared([query, key, value], options)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - boundary: compilers raise anything
                self.why = f"it fails ({_first_line(error)})"
        return self._packed.attention(query, key, value, options)

    def _compared(self, inputs: Sequence[torch.Tensor], options: LayerOptions) -> str:
        given = [part.detach().to(_computed_in(inputs[0])) for part in inputs]
        least = NEAR_LEAST_HALF if given[0].dtype.itemsize < 4 else NEAR_LEAST
        with torch.autocast(given[0].device.type, enabled=False):
            doubled = [part.double() for part in given]
            exact = _there_and_back(self._packed.attention, doubled, options)
            plain = _there_and_back(self._packed.attention, given, options)
            found = _there_and_back(self._flexible, given, options)
        for name, one, other, true in zip(_PARTS, found, plain, exact, strict=False):
            apart, allowed = _distance(one, true), NEAR_FACTOR * _distance(other, true) + least
            if not apart <= allowed:  # also where it is no number
                return f"in layer {options.layer} its {name} are off by {apart:.2g} of their norm"
        return ""


def _distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """As a part of the norm of what is exact."""
    return float((found - exact).norm() / exact.norm().clamp(min=1e-30))


_PARTS = (
    "results",
    "gradients of the queries",
    "gradients of the keys",
    "gradients of the values",
    "gradients of the sinks",
)


def _there_and_back(
    attend: Attend, given: Sequence[torch.Tensor], options: LayerOptions
) -> list[torch.Tensor]:
    """What attention gives for query, key and value, and the gradients of what goes in."""
    sinks = [] if options.sinks is None else [options.sinks.to(given[0].dtype)]
    with torch.enable_grad():
        leaves = [part.detach().clone().requires_grad_() for part in (*given, *sinks)]
        query, key, value = leaves[:3]
        if sinks:
            options = dataclasses.replace(options, sinks=leaves[3])
        result = attend(query, key, value, options)
        # Any direction that no symmetry cancels; the same in all ways.
        along = torch.linspace(-1, 2, result.numel(), device=result.device).view(result.shape)
        gradients = torch.autograd.grad(result, leaves, along.to(result.dtype))
    return [result.detach(), *gradients]


def _computed_in(part: torch.Tensor) -> torch.dtype:
    device = part.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else part.dtype


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text:.200}"
