"""Frozen policies beside the one that is trained: a reference to stay near, a teacher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from training_gym.engines.local.attention import Layout
from training_gym.engines.local.graphs import Recorder
from training_gym.engines.local.head import chunked_logprobs
from training_gym.engines.local.network import Network
from training_gym.engines.local.packing import MicroBatch, Row, micro_batches
from training_gym.models import catalogue
from training_gym.models.weights import load_codec, load_model
from training_gym.spec.algorithms import Distill, FullVocabulary
from training_gym.spec.companions import companion_name, needs_reference
from training_gym.spec.episodes import Trajectory
from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import Recipe
from training_gym.spec.text import TextCodec


class Scorer(Protocol):
    """A policy as far as its log-probabilities are asked for."""

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        ...

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Last hidden states (N, hidden) of N packed tokens."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) in float32 of hidden states (n, hidden)."""
        ...


class AdapterOff:
    """The model beneath an adapter, computed with the very weights that are in memory."""

    def __init__(self, network: Network) -> None:
        """`network` holds a model with an adapter."""
        self._network = network

    @property
    def device(self) -> torch.device:
        """See `Scorer`."""
        return self._network.device

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """See `Scorer`."""
        with self._beneath():
            return self._network.hidden(ids, positions, layout)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `Scorer`."""
        with self._beneath():
            return self._network.logits(hidden)

    @contextmanager
    def _beneath(self) -> Iterator[None]:
        with self._network.model.disable_adapter():
            yield


@dataclass(frozen=True)
class Companions:
    """Whoever is asked beside the policy."""

    reference: Scorer | None = None
    """Gives `reference_logprobs`: the reference policy, or the teacher."""
    translated: TextCodec | None = None
    """The teacher's codec, where it is not the student's own."""


def load_companions(
    recipe: Recipe, network: Network, codec: TextCodec, *, start: Path
) -> Companions:
    """Load what the recipe's algorithm needs beside the policy, which started from `start`.

    Raises `EngineError` for a teacher whose vocabulary cannot be compared with the student's.
    """
    algorithm = recipe.algorithm
    if isinstance(algorithm, Distill):
        folder = catalogue.resolve(algorithm.teacher)
        teacher = load_codec(folder)
        same = same_vocabulary(codec, teacher)
        if not same and isinstance(algorithm.loss, FullVocabulary):
            raise EngineError(
                f"the teacher {algorithm.teacher} has another tokenizer: distributions over "
                "different vocabularies cannot be compared",
                fix="distil with loss=SampledTokens(), or take a teacher of the same family",
            )
        return Companions(frozen(folder, network), None if same else teacher)
    if not needs_reference(algorithm):
        return Companions()
    named = companion_name(algorithm)
    if named is None and recipe.adapter is not None:
        return Companions(AdapterOff(network))
    return Companions(frozen(start if named is None else catalogue.resolve(named), network))


def same_vocabulary(first: TextCodec, second: TextCodec) -> bool:
    """Whether an id is the same text for both, and a text the same ids."""
    if first.vocab_size != second.vocab_size or first.stop_ids != second.stop_ids:
        return False
    probe = "Über 1 234,5 → naïve\n\tλx.x+1 «日本» def f(): return 0  # done"
    every = range(first.vocab_size)
    return first.encode(probe) == second.encode(probe) and all(
        first.decode([token]) == second.decode([token]) for token in every
    )


def frozen(folder: Path, policy: Network, *, recorder: Recorder | None = None) -> Network:
    """The model in `folder`, where and as the policy is computed, never to change."""
    model = load_model(folder, dtype=torch.float32, device=policy.device)
    model.requires_grad_(False)
    model.eval()
    network = Network(model, autocast=policy.autocast, recorder=recorder)
    network.check_parity()
    network.release()  # of what the comparison made: most of these never draw a token
    return network


@torch.no_grad()
def score_trajectories(
    scorer: Scorer,
    trajectories: Sequence[Trajectory],
    *,
    temperature: float,
    token_budget: int,
    chunk: int,
) -> list[list[float]]:
    """Log-probability of every token that the loss covers, as `scorer` sees it; elsewhere 0.0."""
    found = [[0.0] * len(trajectory.token_ids) for trajectory in trajectories]
    for micro in unweighted_micro_batches(trajectories, token_budget, scorer.device):
        hidden = scorer.hidden(micro.ids, micro.positions, micro.layout)
        logprobs = chunked_logprobs(
            scorer,
            hidden.index_select(0, micro.sources),
            micro.targets,
            temperature=temperature,
            chunk=chunk,
        )
        put_back(found, micro, logprobs)
    return found


def unweighted_micro_batches(
    trajectories: Sequence[Trajectory], token_budget: int, device: torch.device
) -> Iterator[MicroBatch]:
    """The trajectories packed as for training; advantages and weights mean nothing."""
    rows = [Row(t, (0.0,) * len(t.token_ids), (0.0,) * len(t.token_ids)) for t in trajectories]
    return micro_batches(rows, token_budget, device)


def put_back(found: list[list[float]], micro: MicroBatch, values: torch.Tensor) -> None:
    """Write one value per target (M,) to its place in its trajectory's list."""
    places = zip(micro.rows.tolist(), micro.places.tolist(), values.tolist(), strict=True)
    for row, place, value in places:
        found[row][place] = value
