"""Sampling by vLLM in the trainer's own process, where vLLM is installed.

vLLM keeps its own copy of the weights, which every update writes over in place. Its
log-probabilities are those of the distribution it drew from (temperature, top-k and top-p applied).
What it computes depends on what else is in the batch, so no run with it repeats bit for bit.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.draws import stream_of
from training_gym.engines.local.network import Network
from training_gym.engines.local.scoring import score_sequence
from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import Vllm
from training_gym.spec.sampling import Completion, Prompt, SampleKey, Sampling, WeightUpdate
from training_gym.spec.text import TextCodec


class VllmSampler:
    """Implements `spec.sampling.Sampler` over a vLLM engine in this process."""

    def __init__(
        self,
        engine: Any,
        network: Network,
        codec: TextCodec,
        compute: Compute,
        *,
        max_sequence_tokens: int,
    ) -> None:
        """Use `start_vllm` for the engine; `network` holds the weights that are trained."""
        self._engine = engine
        self._network = network
        self._codec = codec
        self._compute = compute
        self._max_sequence_tokens = max_sequence_tokens
        self._numbers = itertools.count()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._asked: list[tuple[str, Prompt, Any]] = []
        self._given_up: list[str] = []
        self._driver: asyncio.Task[None] | None = None
        self.version = 0

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        *,
        session: str | None = None,
        adapter: str | None = None,
    ) -> Completion:
        """See `spec.sampling.Sampler`. Raises `EngineError` for what cannot be sampled."""
        require_sampleable(prompt, sampling, adapter)
        assert sampling.max_tokens is not None
        room = self._max_sequence_tokens - len(prompt.token_ids)
        if room <= 0:
            return Completion(token_ids=(), logprobs=(), versions=(), stop_reason="context")
        name = f"{next(self._numbers)}"
        wish = _parameters(sampling, key, self._codec, limit=min(room, sampling.max_tokens))
        version = self.version
        self._answers[name] = asyncio.get_running_loop().create_future()
        self._asked.append((name, prompt, wish))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            answer = await self._answers[name]
        except asyncio.CancelledError:
            self._given_up.append(name)
            raise
        finally:
            del self._answers[name]
        return _completion(answer, version, full=room < sampling.max_tokens)

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `spec.sampling.Sampler`; computed with the weights that are trained."""
        return [
            await self._compute.run(score_sequence, self._network, tuple(ids)) for ids in sequences
        ]

    async def update_weights(self, update: WeightUpdate) -> None:
        """Copy the trained weights over vLLM's and drop what was cached under the old ones."""
        await self._compute.run(self._load)
        self.version = update.version

    async def forget(self) -> None:
        """Drop cached prefixes."""
        await self._compute.run(self._engine.reset_prefix_cache)

    async def end_session(self, session: str) -> None:
        """Nothing to do: vLLM's prefix cache frees blocks as room is needed."""

    @contextlib.asynccontextmanager
    async def presence(self, session: str) -> AsyncIterator[None]:
        """Nothing waits for anybody here."""
        yield

    async def close(self) -> None:
        """Stop sampling; requests in flight are cancelled."""
        if self._driver is not None:
            self._driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._driver
        self._engine = None

    async def _drive(self) -> None:
        while self._answers:
            try:
                ended = await self._compute.run(self._step)
            except Exception as error:  # noqa: BLE001 - boundary: the callers own the failure
                self._fail(error)
                return
            for output in ended:
                answer = self._answers.get(output.request_id)
                if answer is not None and not answer.done():
                    answer.set_result(output.outputs[0])
            await asyncio.sleep(0)  # callers that were answered ask again before the next step

    def _fail(self, error: Exception) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)

    # Below: on the compute thread.

    def _step(self) -> list[Any]:
        given_up, self._given_up = self._given_up, []
        if given_up:
            self._engine.abort_request(given_up)
        asked, self._asked = self._asked, []
        for name, prompt, wish in asked:
            if name in self._answers:
                self._engine.add_request(name, {"prompt_token_ids": list(prompt.token_ids)}, wish)
        if not self._engine.has_unfinished_requests():
            return []
        return [output for output in self._engine.step() if output.finished]

    @torch.no_grad()
    def _load(self) -> None:
        weights = list(plain_weights(self._network.model))
        self._engine.apply_model(lambda model: model.load_weights(weights) and None)
        self._engine.reset_prefix_cache()


def start_vllm(
    folder: Path, settings: Vllm, *, device: str, dtype: str, slots: int, max_sequence_tokens: int
) -> Any:
    """An engine of vLLM over the weights in `folder`; raises `EngineError` without vLLM."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process, where the weights are
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if device == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(settings.cpu_cache_gib))
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine
    except ImportError as error:
        raise EngineError(
            f"sampling by vLLM was asked for, and it cannot be imported: {error}",
            fix="install vllm beside training-gym, or leave recipe.engine.sampler out",
        ) from error
    if device == "cpu":
        _keep_weights_writable()
    arguments = EngineArgs(
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
    return LLMEngine.from_engine_args(arguments)


def plain_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights under the names the base model has, adapters merged into what they change."""
    merged = {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer")
    }
    for name, value in model.state_dict().items():
        if ".lora_" in name or ".modules_to_save." in name:
            continue
        owner, _, leaf = name.rpartition(".base_layer.")
        weight = value
        if owner in merged and leaf == "weight":
            for adapter in merged[owner].active_adapters:
                weight = weight + merged[owner].get_delta_weight(adapter).to(weight.dtype)
        plain = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
        yield plain, weight


def require_sampleable(prompt: Prompt, sampling: Sampling, adapter: str | None) -> None:
    """Raise `EngineError` for a request that no sampler of this engine can answer."""
    if prompt.media:
        raise EngineError(
            "the embedded engine samples text only, the prompt has media",
            fix="remove the images or choose an engine that takes them",
        )
    if adapter is not None:
        raise EngineError(
            f"no adapter is called {adapter!r} in this sampler", fix="leave adapter out"
        )
    if not prompt.token_ids:
        raise EngineError("the prompt has no tokens", fix="give the task a prompt")
    if sampling.max_tokens is None:
        raise EngineError("max_tokens is open", fix="set sampling.max_tokens")


def _parameters(sampling: Sampling, key: SampleKey, codec: TextCodec, *, limit: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=limit,
        min_tokens=min(sampling.min_tokens, limit),
        stop=list(sampling.stop),
        stop_token_ids=sorted(codec.stop_ids),
        ignore_eos=True,  # what ends an answer is in stop_ids, and only that
        logprobs=0,
        seed=stream_of(key) % 2**63,
    )


def _completion(output: Any, version: int, *, full: bool) -> Completion:
    ids = tuple(output.token_ids)
    logprobs = tuple(
        table[token].logprob for token, table in zip(ids, output.logprobs, strict=True)
    )
    reason = "stop" if output.finish_reason == "stop" else ("context" if full else "length")
    return Completion(
        token_ids=ids, logprobs=logprobs, versions=(version,) * len(ids), stop_reason=reason
    )


def _keep_weights_writable() -> None:
    """On CPU vLLM packs weights for its kernels, after which they could not be written again."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, layer.weight, bias)

    utils.dispatch_cpu_unquantized_gemm = plain
