"""Drawing tokens: random numbers that depend on the request alone, and the distribution drawn from.

One uniform number decides one token, by inversion of the cumulative distribution. The number is a
hash of (seed, stream, task, visit, member, turn) advanced by the position (SplitMix64, Steele et
al. 2014), so what is drawn for a request never depends on what else is in the batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from training_gym.spec.sampling import SampleKey, Sampling

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

WIDEST_BLOCK, NARROWEST_BLOCK = 512, 64
"""Tokens summed at once while a cumulative distribution is inverted."""


def stream_of(key: SampleKey) -> int:
    """64 bits in which different keys differ everywhere."""
    text = "\0".join(
        (str(key.seed), key.stream, key.task, str(key.visit), str(key.member), str(key.turn))
    )
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(stream: int, position: int) -> float:
    """The number in [0, 1) for one position of a stream, with 53 random bits."""
    z = (stream + (position + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


@dataclass(frozen=True)
class Draw:
    """What one row asks for at this step."""

    sampling: Sampling
    uniform: float
    banned: tuple[int, ...] = ()
    """Tokens that cannot be drawn (stop tokens before `min_tokens`)."""
    allowed: torch.Tensor | None = None
    """Which tokens can be drawn, (tokens,), of the tokenizer; None: all. Not with `banned`."""


def draw(logits: torch.Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """One token and its log-probability for each row of `logits` (n, vocabulary), float32.

    The log-probability is under the distribution drawn from: after temperature, top-k and top-p.
    At temperature 0 the most probable token is taken, and its log-probability is that of the
    unchanged distribution. Of a row that is held to a form it is the log-probability without the
    form, after temperature alone: what a trainer computes for the same token. `logits` are
    overwritten: rows of a vocabulary's length are passed over as rarely as can be, and none is
    allocated unless it is held to a form.
    """
    banned = [(row, token) for row, wish in enumerate(draws) for token in wish.banned]
    if banned:
        rows, columns = torch.tensor(banned, device=logits.device).T
        logits[rows, columns] = float("-inf")
    if any(wish.sampling.temperature not in (0.0, 1.0) for wish in draws):
        temperatures = [[wish.sampling.temperature or 1.0] for wish in draws]
        logits.div_(torch.tensor(temperatures, device=logits.device))
    held = _Held(logits, draws) if any(wish.allowed is not None for wish in draws) else None
    for row, wish in enumerate(draws):
        if wish.sampling.top_k or wish.sampling.top_p < 1:
            logits[row] = truncated(logits[row], wish.sampling.top_k, wish.sampling.top_p)
    greedy = [row for row, wish in enumerate(draws) if wish.sampling.temperature == 0]
    best = logits[greedy].argmax(dim=1, keepdim=True) if greedy else None
    weights = logits.sub_(logits.amax(dim=1, keepdim=True)).exp_()
    blocks = _in_blocks(weights)
    sums = blocks.sum(dim=2)
    totals = sums.sum(dim=1, keepdim=True)
    targets = torch.tensor([[wish.uniform] for wish in draws], device=logits.device)
    tokens = _invert(blocks, sums, targets * totals)
    if best is not None:
        tokens[greedy] = best
    logprobs = torch.log(weights.gather(1, tokens)) - torch.log(totals)
    if held is not None:
        held.put_back(tokens, logprobs)
    return tokens.squeeze(1).tolist(), logprobs.squeeze(1).tolist()


class _Held:
    """The rows that are held to a form, as they were without it."""

    def __init__(self, logits: torch.Tensor, draws: Sequence[Draw]) -> None:
        """Keep the rows, and put what is not allowed at minus infinity in `logits`."""
        self._rows = [row for row, wish in enumerate(draws) if wish.allowed is not None]
        self._free = logits[self._rows]
        for row in self._rows:
            allowed = draws[row].allowed
            assert allowed is not None
            known = min(len(allowed), logits.shape[1])
            logits[row, known:] = float("-inf")  # rows of embeddings that are no tokens
            logits[row, :known].masked_fill_(~allowed[:known].to(logits.device), float("-inf"))

    def put_back(self, tokens: torch.Tensor, logprobs: torch.Tensor) -> None:
        """Write the log-probabilities (n, 1) that the tokens (n, 1) of these rows had."""
        picked = self._free.gather(1, tokens[self._rows])
        logprobs[self._rows] = picked - self._free.logsumexp(dim=1, keepdim=True)


def _in_blocks(weights: torch.Tensor) -> torch.Tensor:
    """(n, vocabulary) as (n, blocks, width); copied only where no fitting width divides it."""
    width = math.gcd(weights.shape[1], WIDEST_BLOCK)
    if width < NARROWEST_BLOCK:
        width = WIDEST_BLOCK
        weights = torch.nn.functional.pad(weights, (0, -weights.shape[1] % width))
    return weights.view(len(weights), -1, width)


def _invert(blocks: torch.Tensor, sums: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """First index whose running sum exceeds the target, (n, 1); never one of weight zero.

    The sum runs over blocks first (`sums`) and then inside one block: two short sums instead of
    one of a vocabulary's length, both faster and more exact in float32.
    """
    block = blocks.shape[2]
    ends = sums.cumsum(dim=1)
    # Rounding can put the target past the last weight; then the last token with weight is meant.
    chosen = torch.minimum((ends <= targets).sum(dim=1), _last_positive(sums)).unsqueeze(1)
    before = torch.where(chosen > 0, ends.gather(1, (chosen - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, block)).squeeze(1)
    place = (inside.cumsum(dim=1) <= targets - before).sum(dim=1)
    return chosen * block + torch.minimum(place, _last_positive(inside)).unsqueeze(1)


def _last_positive(values: torch.Tensor) -> torch.Tensor:
    """Index of the last positive entry of each row, (n,)."""
    places = torch.arange(values.shape[1], device=values.device)
    return torch.where(values > 0, places, 0).amax(dim=1)


def truncated(logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Logits (vocabulary,) with everything outside top-k and then top-p at minus infinity.

    Top-p keeps the smallest set of most probable tokens whose probability reaches `top_p`
    (Holtzman et al. 2019, arXiv:1904.09751), computed on what top-k left.
    """
    ordered, order = logits.sort(descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k:
        keep[top_k:] = False
    if top_p < 1:
        kept = ordered.masked_fill(~keep, float("-inf")).softmax(dim=0)
        keep &= kept.cumsum(dim=0) - kept < top_p
    result = torch.full_like(logits, float("-inf"))
    result[order[keep]] = ordered[keep]
    return result
