"""What the policy in training says of a batch before its first update."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training_gym.engines.local.companions import put_back, unweighted_micro_batches
from training_gym.engines.local.head import chunked_logprobs
from training_gym.engines.local.network import Network
from training_gym.engines.local.value_head import ValueHead
from training_gym.spec.engine import Column
from training_gym.spec.episodes import Trajectory

OWN: tuple[Column, ...] = ("old_logprobs", "values")


@torch.no_grad()
def own_columns(
    network: Network,
    trajectories: Sequence[Trajectory],
    *,
    columns: Sequence[Column],
    value_head: ValueHead | None,
    temperature: float,
    token_budget: int,
    chunk: int,
) -> dict[Column, list[list[float]]]:
    """Those of `columns` that the policy itself and its value head know, per trajectory and token.

    One pass over the batch; none where nothing of it is asked for.
    """
    found: dict[Column, list[list[float]]] = {
        name: [[0.0] * len(trajectory.token_ids) for trajectory in trajectories]
        for name in OWN
        if name in columns
    }
    if not found:
        return {}
    for micro in unweighted_micro_batches(trajectories, token_budget, network.device):
        hidden = network.hidden(micro.ids, micro.positions, micro.layout)
        hidden = hidden.index_select(0, micro.sources)
        if "old_logprobs" in found:
            logprobs = chunked_logprobs(
                network, hidden, micro.targets, temperature=temperature, chunk=chunk
            )
            put_back(found["old_logprobs"], micro, logprobs)
        if value_head is not None:
            put_back(found["values"], micro, value_head(hidden))
    return found
