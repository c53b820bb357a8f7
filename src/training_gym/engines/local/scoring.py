"""What a policy thinks of given tokens, outside of sampling and training."""

from __future__ import annotations

import torch

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.head import chunked_logprobs
from training_gym.engines.local.network import Network


@torch.inference_mode()
def score_sequence(network: Network, ids: tuple[int, ...]) -> list[float]:
    """Log-probability of each token given those before it; 0.0 for the first."""
    if len(ids) < 2:
        return [0.0] * len(ids)
    tokens = torch.tensor(ids, device=network.device)
    positions = torch.arange(len(ids), device=network.device)
    hidden = network.hidden(tokens, positions, PackedLayout((Segment(0, len(ids)),)))
    scores = chunked_logprobs(network, hidden[:-1], tokens[1:], temperature=1.0, chunk=512)
    return [0.0, *scores.tolist()]
