"""Decoding rows that begin alike: what they share is read once for all of them.

The members of a group hold the same prompt, a copy each. With a query a row, a step of attention
reads every copy for three heads' worth of arithmetic. Here the queries of all rows that share a
prefix meet one copy of it in one product, and each row its own further keys in another. The prefix
then takes part in the row's softmax as one more key: its score is the log-sum-exp of the prefix's
scores, its value what the prefix's keys gave (Juravsky et al. 2024, "Hydragen",
arXiv:2402.05099, section 3.1).

On a CPU only: there it is measured to pay (`benchmarks/engine.md`). What it changes is the order of
additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from training_gym.engines.local.kernels import LayerOptions, capped

WORTH_NUMBERS = 1 << 17
"""Numbers of keys (and as many of values) that one layer must be spared reading for a prefix to be
shared. At half of that both ways take equally long: eight rows of 40 tokens with 192 numbers each
(SmolLM2-135M), of 256 with 32 (the small model of `benchmarks/grpo_step.py`)."""

BAND_NUMBERS = 1 << 14
"""Numbers of keys worth reading in vain rather than making another product for a few rows."""

_OPS: Any = torch.ops.aten
_FUSED = "_scaled_dot_product_flash_attention_for_cpu"


class SharedPrefix(NamedTuple):
    """Rows whose first `length` keys and values are copies of each other."""

    rows: tuple[int, ...]
    length: int


class _Band(NamedTuple):
    """Neighbouring rows that read the same stretch of the cache."""

    rows: slice
    columns: slice
    hidden: torch.Tensor | None
    """(rows, 1, 1, columns): what a row does not see or has seen in its prefix; None: nothing."""


@dataclass(frozen=True)
class Sharing:
    """How the n rows of one step attend, in layers of one window."""

    prefixes: tuple[SharedPrefix, ...]
    members: torch.Tensor
    """Their rows, prefix after prefix."""
    places: torch.Tensor
    """(n,) where each row stands among the members; behind them all: it shares nothing."""
    bands: tuple[_Band, ...]


def plan(
    prefixes: Sequence[SharedPrefix], starts: Sequence[int], window: int | None, width: int
) -> Sharing | None:
    """For rows that hold `starts` tokens and get one more; None: sharing is not worth it.

    `width` is the count of numbers in one position's keys, over all heads. A prefix of which a row
    no longer sees everything, because a sliding window has passed its beginning, is not shared.
    """
    firsts = [0 if window is None else max(0, start + 1 - window) for start in starts]
    chosen = tuple(
        prefix
        for prefix in prefixes
        if (len(prefix.rows) - 1) * prefix.length * width >= WORTH_NUMBERS
        and not any(firsts[row] for row in prefix.rows)
    )
    if not chosen:
        return None
    members = [row for prefix in chosen for row in prefix.rows]
    for prefix in chosen:
        for row in prefix.rows:
            firsts[row] = prefix.length
    place_of = {row: place for place, row in enumerate(members)}
    places = [place_of.get(row, len(members)) for row in range(len(starts))]
    return Sharing(
        chosen, torch.tensor(members), torch.tensor(places), _bands(firsts, starts, width)
    )


def _bands(firsts: Sequence[int], lasts: Sequence[int], width: int) -> tuple[_Band, ...]:
    """Rows in order, cut where reading from the earliest first to the latest last is wasteful."""
    spans: list[tuple[int, int, int, int]] = []
    for row, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        if spans:
            start, end, low, high = spans[-1]
            joined = start, row + 1, min(low, first), max(high, last + 1)
            apart = (end - start) * (high - low) + last + 1 - first
            in_vain = (row + 1 - start) * (joined[3] - joined[2]) - apart
            if in_vain * width <= BAND_NUMBERS:
                spans[-1] = joined
                continue
        spans.append((row, row + 1, first, last + 1))
    bands = []
    for start, end, low, high in spans:
        columns = torch.arange(low, high).view(1, -1)
        seen = columns >= torch.tensor(firsts[start:end]).view(-1, 1)
        seen &= columns <= torch.tensor(lasts[start:end]).view(-1, 1)
        hidden = None if bool(seen.all()) else ~seen[:, None, None, :]
        bands.append(_Band(slice(start, end), slice(low, high), hidden))
    return tuple(bands)


def attend_sharing(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sharing: Sharing,
    options: LayerOptions,
) -> torch.Tensor:
    """One query a row: query (n, H, D), keys and values (n, K, m, D), result (n, H, D)."""
    num_rows, num_heads, head_dim = query.shape
    # Heads that share keys become the query positions of that key head: no key is copied.
    grouped = (query * options.scaling).to(keys.dtype)  # which a cache may hold more narrowly
    grouped = grouped.reshape(num_rows, keys.shape[1], -1, head_dim)
    output, logit = _of_prefixes(grouped, keys, values, sharing, options)
    further = [logit]
    if options.sinks is not None:
        sinks = options.sinks.to(logit.dtype).view(1, keys.shape[1], -1, 1)
        further.append(sinks.expand(num_rows, -1, -1, -1))
    columns = torch.cat(further, dim=-1)
    outputs = []
    for rows, places, hidden in sharing.bands:
        scores = capped(grouped[rows] @ keys[rows, :, places].transpose(2, 3), options.softcap)
        if hidden is not None:
            scores.masked_fill_(hidden, float("-inf"))
        weights = torch.cat([scores.to(columns.dtype), columns[rows]], dim=-1).softmax(dim=-1)
        own, of_prefix = weights[..., : scores.shape[-1]], weights[..., scores.shape[-1], None]
        attended = own.to(values.dtype) @ values[rows, :, places]
        outputs.append(attended + (of_prefix * output[rows]).to(values.dtype))
    return torch.cat(outputs).view(num_rows, num_heads, -1)


def _of_prefixes(
    grouped: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sharing: Sharing,
    options: LayerOptions,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each row's prefix gives, (n, K, H/K, D), and its log-sum-exp, (n, K, H/K, 1).

    For rows without a prefix: zeros, and minus infinity.
    """
    _, num_key_heads, repeats, head_dim = grouped.shape
    sizes = [len(prefix.rows) for prefix in sharing.prefixes]
    outputs, logits = [], []
    members = torch.split(grouped.index_select(0, sharing.members), sizes)
    for prefix, part in zip(sharing.prefixes, members, strict=True):
        stacked = part.transpose(0, 1).reshape(num_key_heads, -1, head_dim)
        key = keys[prefix.rows[0], :, : prefix.length]
        value = values[prefix.rows[0], :, : prefix.length]
        output, logit = _summed(stacked, key, value, options.softcap)
        apart = (num_key_heads, len(prefix.rows), repeats, -1)
        outputs.append(output.view(apart).transpose(0, 1))
        logits.append(logit.view(apart).transpose(0, 1))
    output, logit = torch.cat(outputs), torch.cat(logits)
    if len(output) < len(grouped):
        output = torch.cat([output, torch.zeros_like(output[:1])])
        logit = torch.cat([logit, torch.full_like(logit[:1], float("-inf"))])
    return output.index_select(0, sharing.places), logit.index_select(0, sharing.places)


def _summed(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, softcap: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of scaled queries (K, q, D) to all keys (K, m, D), and the log-sum-exps (K, q, 1).

    By torch's own fused kernel where it knows the layer: half the time of the products below.
    """
    if softcap is None and query.shape[-1] == value.shape[-1] and hasattr(_OPS, _FUSED):
        inputs = (part.unsqueeze(0) for part in (query, key, value))
        fused, sums = getattr(_OPS, _FUSED)(*inputs, scale=1.0)
        return fused[0], sums[0].unsqueeze(-1)
    scores = capped(query @ key.transpose(1, 2), softcap)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    logit = scores.logsumexp(dim=-1, keepdim=True)
    return (scores - logit).exp().to(value.dtype) @ value, logit
