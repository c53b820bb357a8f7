"""What a trainer does differently when it is one of several: its share, the sum, the shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

from training_gym.engines.local.packing import Row, shared_prompt

T = TypeVar("T")


class Replicas(Protocol):
    """The trainers of a run, seen by one of them. Every method is called by all in one order."""

    rank: int
    world: int

    @contextmanager
    def leading(self, name: str, *given: Any) -> Iterator[None]:
        """Have the others call their trainer's method `name` meanwhile; not for them to do."""
        ...

    def gather_weights(self) -> None:
        """Make the weights whole in every process, for the first time."""
        ...

    def exchange(self, value: T) -> list[T]:
        """Everybody's value, by rank; tensors among them lie on the CPU."""
        ...

    def last_backward(self, yes: bool) -> None:
        """Whether the next differentiation completes the gradient, so that it can be summed."""
        ...

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients of parameters that are not sharded."""
        ...

    @contextmanager
    def sharded(self) -> Iterator[None]:
        """Within: parameters are shards with the summed gradient, for the optimizer to change."""
        ...

    def whole_state(self, model: torch.nn.Module) -> dict[str, torch.Tensor] | None:
        """The model's `state_dict()`, where that must not be called; None where it may."""
        ...


class Alone:
    """One trainer: its share is everything, its gradient the sum."""

    rank = 0
    world = 1

    @contextmanager
    def leading(self, name: str, *given: Any) -> Iterator[None]:
        """See `Replicas`."""
        yield

    def gather_weights(self) -> None:
        """See `Replicas`."""

    def exchange(self, value: T) -> list[T]:
        """See `Replicas`."""
        return [value]

    def last_backward(self, yes: bool) -> None:
        """See `Replicas`."""

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """See `Replicas`."""

    @contextmanager
    def sharded(self) -> Iterator[None]:
        """See `Replicas`."""
        yield

    def whole_state(self, model: torch.nn.Module) -> dict[str, torch.Tensor] | None:
        """See `Replicas`."""
        return None


def share(rows: Sequence[Row], replicas: Replicas, *, together: int) -> list[int]:
    """Numbers of the rows one trainer differentiates: neighbours, about as many tokens for each.

    Rows with one prompt stay side by side, so that it is computed by as few as can be; every
    `together` rows are never parted. Empty where there are fewer of them than trainers.
    """
    if replicas.world == 1:
        return list(range(len(rows)))
    by_prompt: dict[tuple[int, ...], list[range]] = {}
    for start in range(0, len(rows), together):
        unit = range(start, start + together)
        by_prompt.setdefault(shared_prompt(rows[start]), []).append(unit)
    units = [unit for alike in by_prompt.values() for unit in alike]
    sizes = [sum(len(rows[number].trajectory.token_ids) for number in unit) for unit in units]
    total, before = sum(sizes), 0
    mine: list[int] = []
    for unit, size in zip(units, sizes, strict=True):
        if int((before + size / 2) * replicas.world / total) == replicas.rank:
            mine.extend(unit)
        before += size
    return mine


def weightless(row: Row) -> Row:
    """A row that is computed and changes nothing."""
    zeros = (0.0,) * len(row.weights)
    return Row(row.trajectory, zeros, zeros, row.columns)
