"""Starts vLLM in this process, over the files of a model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import Vllm


def start_vllm(
    folder: Path, settings: Vllm, *, device: str, dtype: str, slots: int, max_sequence_tokens: int
) -> Any:
    """A `vllm.v1.engine.llm_engine.LLMEngine` that serves the model in `folder`.

    Args:
        folder: of the model, with its configuration.
        settings: how much memory it may take.
        device: `cuda` or `cpu`.
        dtype: `float32` or `bfloat16`.
        slots: most sequences at once.
        max_sequence_tokens: of a prompt and its answer.

    Raises:
        EngineError: vLLM is not installed, or cannot serve this model here.
    """
    _set_before_import(settings, device)
    with _own_threads():
        try:
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise EngineError(
                f"sampling by vLLM was asked for, and it cannot be imported: {error}",
                fix="install vllm beside training-gym, or leave engine.sampler out",
            ) from error
        if device == "cpu":
            _keep_weights_writable()
        try:
            return LLMEngine.from_engine_args(
                EngineArgs(
                    model=str(folder),
                    dtype=dtype,
                    max_model_len=max_sequence_tokens,
                    max_num_seqs=slots,
                    gpu_memory_utilization=settings.memory_fraction,
                    enforce_eager=settings.eager,
                    enable_prefix_caching=True,
                    logprobs_mode="processed_logprobs",
                    disable_log_stats=True,
                )
            )
        except Exception as error:
            raise EngineError(
                f"vLLM cannot serve {folder.name}: {_last_line(error)}",
                fix="change engine.sampler's memory, or leave engine.sampler out",
            ) from error


def _set_before_import(settings: Vllm, device: str) -> None:
    """What vLLM reads from the environment; what the user has set there stays."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process, where the weights are
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if device == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(settings.cpu_cache_gib))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # training shares the cores
        os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))


@contextlib.contextmanager
def _own_threads() -> Iterator[None]:
    """Give back the threads that vLLM takes away while it loads."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _keep_weights_writable() -> None:
    """On a CPU vLLM packs weights for its kernels, after which they could not be written again."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, layer.weight, bias)

    utils.dispatch_cpu_unquantized_gemm = plain


def _last_line(error: Exception) -> str:
    return next(reversed(str(error).strip().splitlines()), type(error).__name__)[:200]
