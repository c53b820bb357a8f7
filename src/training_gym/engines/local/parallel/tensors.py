"""Tensors with and without shards."""

from __future__ import annotations

import torch


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor without its shards; every process asks in the same order."""
    if not _is_sharded(value):
        return value
    full: torch.Tensor = value.full_tensor()  # type: ignore[attr-defined]
    return full


def like(value: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """A whole tensor cut as `pattern` is, without a word between the processes."""
    if not _is_sharded(pattern) or value.shape != pattern.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = pattern.device_mesh, pattern.placements  # type: ignore[attr-defined]
    cut: torch.Tensor = distribute_tensor(
        value.to(mesh.device_type), mesh, placements, src_data_rank=None
    )
    return cut


def _is_sharded(value: torch.Tensor) -> bool:
    # Asked without importing the class: that costs a second which a single process need not pay.
    return type(value).__name__ == "DTensor"
