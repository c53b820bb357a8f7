"""A model of this machine to play episodes with, without training it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import torch

from training_gym.engines.local.companions import frozen
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.fixed_models import LocalFixedModels
from training_gym.engines.local.graphs import recorder_on
from training_gym.engines.local.groups import training_sampling
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.models import catalogue
from training_gym.models.weights import load_codec, load_model
from training_gym.rollouts.seats import SampledPlayers
from training_gym.rollouts.services import Services
from training_gym.spec.recipe import Recipe
from training_gym.spec.text import TextCodec


@dataclass(frozen=True)
class Table:
    """What an `EpisodeRunner` takes."""

    players: SampledPlayers
    services: Services
    sampler: LocalSampler
    codec: TextCodec


@contextlib.asynccontextmanager
async def local_table(
    model: str,
    recipe: Recipe,
    *,
    slots: int,
    max_sequence_tokens: int | None = None,
    say: Callable[[str], None],
) -> AsyncIterator[Table]:
    """Load a model as a run would, by its catalogue name, id or folder.

    Args:
        model: Which; a run's checkpoint folder is one, too.
        recipe: Its seed, sampling and engine are used; the sampler is the embedded one, and where
            the recipe has another, that is said.
        slots: Answers sampled at once.
        max_sequence_tokens: Longest conversation; None: what the model takes, at most 8192.
        say: Receives a line where something is fetched.
    """
    engine = recipe.engine
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    if engine.sampler is not None:
        say("engine.sampler is left out: episodes are played with the embedded sampler")
    compute = Compute()
    try:
        folder = await compute.run(lambda: catalogue.resolve(model, say=say))
        device = _device(recipe)
        loaded = await compute.run(load_model, folder, dtype=torch.float32, device=device)
        loaded.eval()
        half = engine.dtype == "bfloat16" or (engine.dtype == "auto" and device == "cuda")
        network = Network(
            loaded,
            autocast=torch.bfloat16 if half else None,
            recorder=recorder_on(loaded.device, wanted=engine.graphs),
        )
        await compute.run(network.check_parity)
        limit = getattr(loaded.config, "max_position_embeddings", None) or 8192
        longest = max_sequence_tokens or min(limit, 8192)
        codec = load_codec(folder)
        sampler = LocalSampler(
            network,
            codec,
            compute,
            slots=slots,
            max_sequence_tokens=longest,
            deterministic=False,
        )
        fixed = LocalFixedModels(
            catalogue.resolve,
            lambda other: frozen(other, network),
            compute,
            sampling=training_sampling(recipe),
            seed=recipe.seed,
            slots=slots,
            max_sequence_tokens=longest,
        )
        services = Services(fixed=fixed)
        try:
            players = SampledPlayers(sampler, codec, seed=recipe.seed, drift=recipe.drift)
            yield Table(players, services, sampler, codec)
        finally:
            await services.close()
            await sampler.close()
    finally:
        compute.close()


def _device(recipe: Recipe) -> str:
    """The device asked for; where that is left open, the fastest there is."""
    if recipe.engine.device != "auto":
        return recipe.engine.device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
