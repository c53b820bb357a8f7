"""Models that stay as they are beside the one under training: opponents, simulated users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from training_gym.engines.local.attendance import Attendance
from training_gym.engines.local.companions import frozen
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.drawing import RunSampler
from training_gym.engines.local.graphs import recorder_on
from training_gym.engines.local.groups import training_sampling
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.models import catalogue
from training_gym.models.weights import load_codec
from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.endpoints import Endpoints
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Policy
from training_gym.spec.errors import EngineError
from training_gym.spec.messages import Message, ToolSpec
from training_gym.spec.plan import Plan
from training_gym.spec.sampling import Sampling
from training_gym.spec.text import TextCodec


class LocalFixedModels:
    """Implements `FixedModels`: each model is loaded once, when an episode first asks it.

    It is drawn from by an embedded sampler whoever samples the policy. In deterministic mode that
    one takes its turns with the policy's, so that what a fixed model says repeats bit for bit.
    """

    def __init__(
        self,
        resolve: Callable[[str], Path],
        load: Callable[[Path], Network],
        compute: Compute,
        *,
        sampling: Sampling,
        seed: int,
        slots: int,
        max_sequence_tokens: int,
        attendance: Attendance | None = None,
        refused: str = "",
    ) -> None:
        """Find a model's folder with `resolve`, and load it with `load` on the compute thread.

        `attendance` is that of the policy's sampler where steps wait for the episodes in play.
        `refused` says why no model can be loaded here; those behind addresses always can.
        """
        self._resolve = resolve
        self._load = load
        self._compute = compute
        self._sampling = sampling.changed(form=None)  # the form is the policy's
        self._seed = seed
        self._slots = slots
        self._max_sequence_tokens = max_sequence_tokens
        self._attendance = attendance
        self._refused = refused
        self._lock = asyncio.Lock()
        self._loaded: dict[str, tuple[LocalSampler, TextCodec]] = {}
        self._endpoints = Endpoints()

    def policy(self, model: str | Endpoint, attempt: Attempt) -> Policy:
        """See `FixedModels`."""
        if isinstance(model, Endpoint):
            return self._endpoints.policy(model, attempt)
        if self._refused:
            raise EngineError(
                f"the fixed model {model!r} cannot be loaded: {self._refused}",
                fix="set engine=LocalEngine(deterministic=False) or data_parallel=1, or serve the "
                "model and give its address: Endpoint(base_url=…, model=…)",
            )
        return _FixedPolicy(self, model, attempt)

    async def close(self) -> None:
        """Stop the samplers and end the connections."""
        for sampler, _ in self._loaded.values():
            await sampler.close()
        await self._endpoints.close()

    async def opened(self, model: str, attempt: Attempt) -> SampledPolicy:
        """The model's policy for one episode; what it samples is recorded nowhere."""
        sampler, codec = await self._sampler(model)
        key = attempt.key(self._seed)
        return SampledPolicy(
            sampler,
            codec,
            TokenRecord(codec),
            key.changed(stream=f"{key.stream}/fixed"),
            self._sampling,
            session=attempt.id,
        )

    async def _sampler(self, model: str) -> tuple[LocalSampler, TextCodec]:
        async with self._lock:
            if model not in self._loaded:
                folder = await self._compute.run(self._resolve, model)
                network = await self._compute.run(self._load, folder)
                sampler = LocalSampler(
                    network,
                    codec := load_codec(folder),
                    self._compute,
                    slots=self._slots,
                    max_sequence_tokens=self._max_sequence_tokens,
                    deterministic=self._attendance is not None,
                    attendance=self._attendance,
                )
                self._loaded[model] = (sampler, codec)
            return self._loaded[model]


def fixed_models(
    plan: Plan, sampler: RunSampler, policy: Network, compute: Compute
) -> LocalFixedModels:
    """The fixed models of a run whose policy is drawn from by `sampler`."""
    recipe = plan.run.recipe
    waits = recipe.engine.deterministic
    own = sampler if waits and isinstance(sampler, LocalSampler) else None
    refused = "in deterministic mode, several processes do not wait for its answers"
    return LocalFixedModels(
        catalogue.resolve,
        lambda folder: frozen(
            folder, policy, recorder=recorder_on(policy.device, wanted=recipe.engine.graphs)
        ),
        compute,
        sampling=training_sampling(recipe),
        seed=recipe.seed,
        slots=plan.slots,
        max_sequence_tokens=plan.max_sequence_tokens,
        attendance=None if own is None else own.attendance,
        refused=refused if waits and own is None else "",
    )


class _FixedPolicy:
    """A policy whose model is loaded at its first answer."""

    def __init__(self, models: LocalFixedModels, model: str, attempt: Attempt) -> None:
        self._models = models
        self._model = model
        self._attempt = attempt
        self._opened: SampledPolicy | None = None

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
    ) -> Message:
        return await (await self._policy()).chat(messages, tools=tools, sampling=sampling)

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        return await (await self._policy()).complete(text, sampling=sampling)

    async def _policy(self) -> SampledPolicy:
        if self._opened is None:
            self._opened = await self._models.opened(self._model, self._attempt)
        return self._opened
