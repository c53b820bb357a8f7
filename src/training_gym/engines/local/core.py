"""What holds and changes the weights: the same in every process of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from training_gym.engines.local.companions import Companions, load_companions
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.drawing import RunSampler
from training_gym.engines.local.graphs import recorder_on
from training_gym.engines.local.guard import MemoryGuard
from training_gym.engines.local.network import Network
from training_gym.engines.local.parallel.ranks import Rank
from training_gym.engines.local.parallel.replicas import Alone, Replicas
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.weights import load_codec, load_model, save_model
from training_gym.records.checkpoints import Checkpoint, require_whole
from training_gym.spec.algorithms import GivenAnswers
from training_gym.spec.plan import Plan
from training_gym.spec.text import TextCodec


@dataclass(frozen=True)
class Origin:
    """Where an attempt starts from."""

    plan: Plan
    source: Path
    """Folder of the model."""
    checkpoint: Checkpoint | None = None
    version: int = 0
    """Of the policy."""


@dataclass(frozen=True)
class Core:
    """Loaded weights and what is made of them; the trainer comes last."""

    origin: Origin
    codec: TextCodec
    network: Network
    parity: float
    """Largest difference of a log-probability from the model's own forward."""
    companions: Companions

    def trainer(self, ranks: Sequence[Rank] = ()) -> LocalTrainer:
        """What changes the weights; made once.

        With `engine.data_parallel` it is one of several over the default process group, which
        exists already, and all of them have to be made at once. The leader has the others' `ranks`.
        """
        recipe, checkpoint = self.origin.plan.run.recipe, self.origin.checkpoint
        replicas = self._replicas(ranks)

        def save_weights(folder: Path) -> None:
            state = replicas.whole_state(self.network.model)
            save_model(self.network.model, self.origin.source, folder, state=state)

        made = LocalTrainer(
            self.network,
            recipe,
            token_budget=self.origin.plan.token_budget,
            total_steps=recipe.num_steps * recipe.updates_per_batch,
            save_weights=save_weights,
            companions=self.companions,
            replicas=replicas,
        )
        made.keeps_entropies = not isinstance(recipe.algorithm, GivenAnswers)
        if checkpoint is not None:
            made.load(str(checkpoint.resume))
        replicas.gather_weights()
        return made

    def sampler(self, compute: Compute, slots: int | None = None) -> LocalSampler:
        """What draws from the weights; `slots` sequences at once, None: as many as planned."""
        plan = self.origin.plan
        made = LocalSampler(
            self.network,
            self.codec,
            compute,
            slots=plan.slots if slots is None else slots,
            max_sequence_tokens=plan.max_sequence_tokens,
            deterministic=plan.run.recipe.engine.deterministic,
        )
        made.version = self.origin.version
        return made

    def retain(self, sampler: LocalSampler, guard: MemoryGuard, slots: int) -> None:
        """Keep what recorded steps read and write while the weights change, where it fits.

        Each step would have to be recorded anew for every batch, which takes longer than it saves.
        """
        network, tokens = self.network, self.origin.plan.max_sequence_tokens
        if not network.decoding.records:
            return

        def give_up() -> None:
            network.retains = False
            network.release()
            sampler.give_back()

        network.retains = guard.retains(slots, tokens, give_up)

    def vllm_sampler(self, compute: Compute, slots: int) -> RunSampler:
        """What draws from a copy of the weights in vLLM; on the compute thread.

        Raises `EngineError` where vLLM is not installed or cannot serve this model.
        """
        from training_gym.engines.local.vllm.sampler import VllmSampler  # only some need it
        from training_gym.engines.local.vllm.start import start_vllm

        plan = self.origin.plan
        engine = plan.run.recipe.engine
        assert engine.sampler is not None, "asked for"
        started = start_vllm(
            self.origin.source,
            engine.sampler,
            device=engine.device,
            dtype=engine.dtype,
            slots=slots,
            max_sequence_tokens=plan.max_sequence_tokens,
        )
        made = VllmSampler(
            started,
            self.network,
            self.codec,
            compute,
            max_sequence_tokens=plan.max_sequence_tokens,
        )
        made.take_up(self.origin.version)
        return made

    def _replicas(self, ranks: Sequence[Rank]) -> Replicas:
        if self.origin.plan.run.recipe.engine.data_parallel == 1:
            return Alone()
        from training_gym.engines.local.parallel.sharded import Sharded  # a second that few need

        return Sharded(self.network, ranks)


def load_core(origin: Origin, *, rank: int = 0) -> Core:
    """Load the model and the frozen ones beside it, for process number `rank`."""
    plan, source = origin.plan, origin.source
    codec = load_codec(source)
    start = _started_from(plan) or source
    folder = origin.checkpoint.folder if origin.checkpoint else start
    network = _load_network(plan, folder, rank)
    parity = network.check_parity()
    companions = load_companions(plan.run.recipe, network, codec, start=start)
    return Core(origin, codec, network, parity, companions)


def _started_from(plan: Plan) -> Path | None:
    """The checkpoint that the definition starts from; the checks looked at its sizes only."""
    if plan.run.resume_from_checkpoint is None:
        return None
    return require_whole(Path(plan.run.resume_from_checkpoint)).folder


def _load_network(plan: Plan, folder: Path, rank: int) -> Network:
    recipe = plan.run.recipe
    adapted = (folder / "adapter_config.json").is_file()
    engine = recipe.engine
    spread = engine.device == "cuda" and engine.data_parallel > 1
    model = load_model(
        folder,
        dtype=torch.float32,
        device=f"cuda:{rank}" if spread else engine.device,
        adapter=None if adapted else recipe.adapter,
        seed=recipe.seed,
    )
    network = Network(
        model,
        autocast=torch.bfloat16 if engine.dtype == "bfloat16" else None,
        recorder=recorder_on(model.device, wanted=engine.graphs and engine.sampler is None),
    )
    model.eval()
    return network
