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
    inner = parts.by_chunk

    def by_chunk(chunk: Chunk) -> torch.Tensor:
        found[chunk.part] = entropies(chunk, micro.targets[chunk.part]).cpu()
        return torch.zeros((), device=chunk.logits.device) if inner is None else inner(chunk)

    return replace(parts, by_chunk=by_chunk), found


@torch.no_grad()
def entropies(chunk: Chunk, targets: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of each row of a chunk, (n,): H = log Σ exp z - Σ p z.

    The normaliser is what the targets' log-probabilities (n,) already had to know. On a CPU it goes
    row by row: a row of the vocabulary fits the cache, a chunk does not, and memory is what this
    would wait for.
    """
    logits = chunk.logits.detach()
    picked = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    normalizers = picked - chunk.logprobs.detach()
    if logits.device.type != "cpu":
        weights = torch.exp(logits - normalizers.unsqueeze(1))
        return normalizers - (weights * logits).sum(dim=1)
    means = [
        torch.dot((row - normalizer).exp_(), row)
        for row, normalizer in zip(logits, normalizers, strict=True)
    ]
    return normalizers - torch.stack(means)


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
