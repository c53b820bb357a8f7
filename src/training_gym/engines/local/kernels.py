"""Attention over keys and values at hand: fused where a kernel knows it, else written out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class LayerOptions:
    """What one layer asks of attention."""

    layer: int
    """Whose keys and values it attends to: its own, unless it shares an earlier layer's."""
    scaling: float
    shares: bool = False
    """Whether they are another layer's, which has stored them in this pass."""
    window: int | None = None
    """Keys further back than this are not seen (sliding window)."""
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    """Per head, a logit that takes part in the softmax and has no value (gpt-oss)."""


def causal_mask(start: int, total: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Who sees whom: queries at positions start…total-1, keys at 0…total-1; True is seen."""
    queries = torch.arange(start, total, device=device).view(-1, 1)
    keys = torch.arange(total, device=device).view(1, -1)
    seen = keys <= queries
    if window is not None:
        seen &= keys > queries - window
    return seen


def seen_keys(positions: torch.Tensor, total: int, window: int | None) -> torch.Tensor:
    """Which of the keys 0…total-1 rows at `positions` (n,) see: (n, 1, 1, total)."""
    last = positions.view(-1, 1)
    keys = torch.arange(total, device=positions.device).view(1, -1)
    seen = keys <= last
    if window is not None:
        seen &= keys > last - window
    return seen[:, None, None, :]


def attend_segment(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    options: LayerOptions,
) -> torch.Tensor:
    """Segments alike: query (b, H, n, D), key and value (b, K, m, D); mask None: plainly causal."""
    if options.sinks is not None or options.softcap is not None:
        repeats = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(repeats, dim=1)
        value = value.repeat_interleave(repeats, dim=1)
        if mask is None:
            mask = causal_mask(0, key.shape[2], None, query.device)
        sinks = None if options.sinks is None else options.sinks.view(1, -1, 1, 1)
        return attend_explicitly(query, key, value, mask, options, sinks)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=options.scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def attend_rows(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor | None,
    options: LayerOptions,
) -> torch.Tensor:
    """One query a row: query (n, H, D), keys and values (n, K, m, D), result (n, H, D).

    `seen` is (n, 1, 1, m), or what to add to the scores (0 or -inf); None: everything is.
    """
    num_rows, num_heads, head_dim = query.shape
    num_key_heads = keys.shape[1]
    # Heads that share keys become the query positions of that key head: no key is copied.
    grouped = query.reshape(num_rows, num_key_heads, num_heads // num_key_heads, head_dim)
    plain = options.sinks is None and options.softcap is None
    if plain and query.device.type != "cpu":
        output = F.scaled_dot_product_attention(
            grouped, keys, values, attn_mask=seen, scale=options.scaling
        )
    else:  # on CPUs the fused kernel is slower with so few queries than two batched products
        sinks = None if options.sinks is None else options.sinks.view(1, num_key_heads, -1, 1)
        output = attend_explicitly(grouped, keys, values, seen, options, sinks)
    return output.reshape(num_rows, num_heads, values.shape[-1])


def attend_explicitly(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    options: LayerOptions,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention written out, for what the fused kernel does not know."""
    scores = capped(torch.matmul(query, key.transpose(2, 3)) * options.scaling, options.softcap)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    exact = torch.promote_types(scores.dtype, torch.float32)
    if sinks is None:
        return torch.matmul(torch.softmax(scores, dim=-1, dtype=exact).to(value.dtype), value)
    column = sinks.expand(scores.shape[0], -1, scores.shape[2], 1).to(scores.dtype)
    weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1, dtype=exact)
    return torch.matmul(weights[..., :-1].to(value.dtype), value)


def capped(scores: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """Scores held between -softcap and softcap (Gemma 2)."""
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap
