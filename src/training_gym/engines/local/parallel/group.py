"""The process group of a run: where its members meet, and how they leave it."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import LocalEngine

PATIENCE = timedelta(minutes=30)
"""How long a member waits for the others: the leader samples while they have nothing to do."""


def require_devices(engine: LocalEngine) -> None:
    """Raise `EngineError` where there are fewer GPUs than members."""
    if engine.device == "cuda" and torch.cuda.device_count() < engine.data_parallel:
        raise EngineError(
            f"engine.data_parallel = {engine.data_parallel}, but {torch.cuda.device_count()} GPUs "
            "can be seen",
            fix=f"lower it to {torch.cuda.device_count()}",
        )


def join(engine: LocalEngine, rank: int, meeting_point: Path) -> None:
    """Become a member; returns when all have come to `meeting_point`, a file they all see."""
    on_cuda = engine.device == "cuda"
    if on_cuda:
        torch.cuda.set_device(rank)
    else:
        # Members are neighbours. Otherwise gloo asks for the host's name, which may not resolve.
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_cuda else "gloo",
        store=dist.FileStore(  # type: ignore[attr-defined]
            str(meeting_point), engine.data_parallel
        ),
        rank=rank,
        world_size=engine.data_parallel,
        timeout=PATIENCE,
    )


def leave() -> None:
    """Be a member no more."""
    if dist.is_initialized():
        dist.destroy_process_group()
