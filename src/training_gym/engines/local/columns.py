"""What is known of each token once it is learned from, kept for people to look at.

Advantage, mismatch (the trainer's log-probability minus the sampler's: as a difference, because
half precision would drown it in either of them) and the entropy of the distribution, for the tokens
that the loss covers; the others hold NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from training_gym.algorithms.divergences import entropies
from training_gym.engines.local.credit import Credited, Group
from training_gym.engines.local.head import Chunk, LossParts
from training_gym.engines.local.measures import Learned
from training_gym.engines.local.packing import MicroBatch
from training_gym.spec.episodes import Counters, Episode, Trajectory


class ColumnRecorder(Protocol):
    """Keeps columns of an episode's tokens; `records.recorder.Recorder` does."""

    def token_columns(
        self,
        episode: str,
        columns: Mapping[str, Sequence[float]],
        *,
        trajectory: int = 0,
        start: int = 0,
        counters: Counters | None = None,
    ) -> None:
        """Keep `columns`, whose values belong to the tokens from `start` on."""
        ...


def record_columns(
    recorder: ColumnRecorder, groups: Sequence[Group], rows: Sequence[Credited], learned: Learned
) -> None:
    """Record what an update learned from: `rows`, out of `groups`."""
    owners = _owners(groups)
    for row, columns in zip(rows, _columns(rows, learned), strict=True):
        episode, number = owners[id(row.trajectory)]
        recorder.token_columns(
            episode.id,
            columns,
            trajectory=number,
            start=row.trajectory.prompt_length,
            counters=episode.counters,
        )


def tapped(parts: LossParts, micro: MicroBatch) -> tuple[LossParts, torch.Tensor]:
    """The same loss, and the entropies (M,) that are filled in as its chunks are computed."""
    found = torch.full((len(micro.targets),), math.nan)
    inner, of = parts.by_chunk, entropies if parts.reads_logits else weight_entropies

    def by_chunk(chunk: Chunk) -> torch.Tensor:
        found[chunk.part] = of(chunk.logits.detach()).cpu()
        return torch.zeros((), device=chunk.logits.device) if inner is None else inner(chunk)

    return replace(parts, by_chunk=by_chunk), found


def weight_entropies(weights: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of each row of `weights` (n, vocabulary), which need not sum to 1: (n,).

    With W = Σ w: H = log W - Σ w log w / W. On a CPU it goes row by row: a row of the vocabulary
    fits the cache, a chunk does not, and memory is what this would wait for.
    """
    totals = weights.sum(dim=1)
    if weights.device.type != "cpu":
        means = torch.xlogy(weights, weights).sum(dim=1)
    else:
        means = torch.stack([torch.dot(row, row.clamp(min=_TINY).log_()) for row in weights])
    return torch.log(totals) - means / totals


_TINY = 1e-38
"""What a weight of 0 is taken for, so that its logarithm is a number."""


def _owners(groups: Sequence[Group]) -> dict[int, tuple[Episode, int]]:
    """Of each trajectory, by its identity: its episode and its number there."""
    return {
        id(trajectory): (episode, number)
        for group in groups
        for episode in group.episodes
        for number, trajectory in enumerate(episode.trajectories)
    }


def _columns(rows: Sequence[Credited], learned: Learned) -> list[dict[str, list[float]]]:
    """Per row, the columns of its tokens behind the prompt."""
    micro = learned.micro
    values = {
        "advantage": micro.advantages,
        "mismatch": learned.logprobs - micro.sampler_logprobs,
    }
    if learned.entropies is not None:
        values["entropy"] = learned.entropies
    found = [{name: _empty(row.trajectory) for name in values} for row in rows]
    numbers = micro.rows.tolist()
    places = [
        place - rows[row].trajectory.prompt_length
        for row, place in zip(numbers, micro.places.tolist(), strict=True)
    ]
    for name, column in values.items():
        for row, place, value in zip(numbers, places, column.tolist(), strict=True):
            found[row][name][place] = value
    return found


def _empty(trajectory: Trajectory) -> list[float]:
    return [math.nan] * (len(trajectory.token_ids) - trajectory.prompt_length)
