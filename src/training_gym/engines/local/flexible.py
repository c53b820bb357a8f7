"""Packed attention by one kernel over all segments: torch's flex_attention, compiled for CUDA.

What `PackedLayout` computes one batch of equal segments after another, behind a prefix with a dense
mask that keeps the fused kernels out, is here one call: a kernel that is compiled for this mask and
leaves out the blocks of 128 × 128 in which nobody sees anybody (Dong et al. 2024, "Flex Attention",
arXiv:2412.05496).

The mask asks four numbers of each token and none of the batch. Segments and their prefixes form a
tree; numbered in the order in which one walks through it, the descendants of a segment are an
interval, and a key is seen by who lies in the interval of its segment, at no earlier position.

Batches are padded to few different lengths: the kernel is compiled again for new shapes. What pads
sees only itself, and nobody sees it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.kernels import LayerOptions, capped

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import AuxOutput, BlockMask

BLOCK = 128
"""Tokens of one edge of a block that is left out, masked or not masked as a whole."""

ROOM = 1 << 16
"""Entries of the mask's tensors, or twice as many until the batch fits: of few sizes, because
lengths that vary inside the mask are what compilers know least about."""

STRIP_ENTRIES = 1 << 24
"""Entries of the mask that are looked at at once to sort the blocks: the whole is never made."""

RECOMPILE_LIMIT = 64
"""Shapes and modes that the kernel may be compiled for, before that counts as a failure."""

Kernel = Callable[..., Any]
"""`torch.nn.attention.flex_attention.flex_attention`, or what computes the same."""

MaskFunction = Callable[[Any, Any, torch.Tensor, torch.Tensor], torch.Tensor]
"""Whether a query (third) sees a key (fourth), by their places; any shapes that broadcast."""


class Tokens(NamedTuple):
    """What the mask knows of each of the packed tokens; (N,) int32 each."""

    enter: torch.Tensor
    """Number of the token's segment in a walk through the tree."""
    leave: torch.Tensor
    """The first number behind its segment's descendants."""
    position: torch.Tensor
    earliest: torch.Tensor
    """The first position that the token sees."""


class FlexibleAttention:
    """The attention of one packed batch, in all layers."""

    def __init__(self, segments: Sequence[Segment], kernel: Kernel) -> None:
        """Of `segments`, which cover the batch; `kernel` computes."""
        self._segments = segments
        self._kernel = kernel
        self._num_tokens = sum(segment.length for segment in segments)
        self._masks: dict[int | None, BlockMask] = {}

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: LayerOptions
    ) -> torch.Tensor:
        """Attend; query (1, H, N, D), key and value (1, K, N, D), result (1, H, N, D)."""
        from torch.nn.attention.flex_attention import AuxRequest

        device = query.device
        more = padded_length(self._num_tokens) - self._num_tokens
        inputs = [F.pad(part, (0, 0, 0, more)) for part in _in_one_type(query, key, value)]
        with torch.autocast(device.type, enabled=False):
            computed = self._kernel(
                *inputs,
                score_mod=None if options.softcap is None else _cap(options.softcap),
                block_mask=self._mask(options.window, device),
                scale=options.scaling,
                enable_gqa=query.shape[1] != key.shape[1],
                return_aux=None if options.sinks is None else AuxRequest(lse=True),
            )
            if options.sinks is not None:
                computed = _sunk(computed[0], computed[1], options.sinks)
        attended: torch.Tensor = computed[:, :, : self._num_tokens]
        return attended

    def _mask(self, window: int | None, device: torch.device) -> BlockMask:
        if window not in self._masks:
            tokens = tokens_of(self._segments, padded_length(self._num_tokens), window)
            self._masks[window] = block_mask(Tokens(*(each.to(device) for each in tokens)))
        return self._masks[window]


def kernels_for(device: torch.device) -> tuple[Kernel, ...]:
    """Compiled for any length and, should that fail, for each length anew.

    None at all on such a device, or without a compiler for it.
    """
    import importlib.util

    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return ()
    return compiled("inductor"), compiled("inductor", any_length=False)


@functools.cache
def compiled(backend: str | Callable[..., Any], *, any_length: bool = True) -> Kernel:
    """flex_attention through torch's compiler.

    It raises where the compiler fails or is asked too often: never does it compute, unasked, by the
    matrix of all scores.
    """
    from torch._dynamo import config
    from torch.nn.attention.flex_attention import flex_attention

    dynamic = None if any_length else False
    function: Kernel = torch.compile(
        flex_attention, fullgraph=True, backend=backend, dynamic=dynamic
    )

    def kernel(*inputs: torch.Tensor, **options: Any) -> Any:
        with config.patch(recompile_limit=RECOMPILE_LIMIT):
            return function(*inputs, **options)

    return kernel


def padded_length(count: int) -> int:
    """The length that `count` tokens are padded to: whole blocks, an eighth more at most.

    Beyond 1024 tokens a multiple of an eighth of the power of two above: eight lengths in every
    doubling, of which a run with full micro-batches sees few.
    """
    step = max(BLOCK, (1 << (count - 1).bit_length()) // 16)
    return -(-count // step) * step


def tokens_of(segments: Sequence[Segment], length: int, window: int | None) -> Tokens:
    """For the mask; `length`: with what pads.

    The segments before a prefix are a prefix of it, as `packing.pack` lays them.
    """
    spans = [*_intervals(segments), (len(segments), len(segments) + 1)]
    more = length - sum(segment.length for segment in segments)
    counts = torch.tensor([*(segment.length for segment in segments), more])
    positions = [
        torch.arange(segment.prefix_length, segment.prefix_length + segment.length)
        for segment in segments
    ]
    own = torch.cat(positions)
    first = torch.zeros_like(own) if window is None else (own + 1 - window).clamp(min=0)
    padding = torch.arange(more)
    enter, leave = torch.tensor(spans).T.repeat_interleave(counts, dim=1)
    found = enter, leave, torch.cat([own, padding]), torch.cat([first, padding])
    return Tokens(*(each.to(torch.int32) for each in found))


def _intervals(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Of each segment: its number in a walk through the tree, and the one behind its subtree."""
    index_of = {segment.start: index for index, segment in enumerate(segments)}
    parents = [index_of[s.prefix[-1]] if s.prefix else None for s in segments]
    sizes = [1] * len(segments)
    for index in reversed(range(len(segments))):
        parent = parents[index]
        if parent is not None:
            before = segments[parent]
            assert segments[index].prefix == (*before.prefix, before.start), "a tree"
            sizes[parent] += sizes[index]
    root = 0
    enters: list[int] = []
    free: list[int] = []  # in each segment's interval, for its next child
    for parent, size in zip(parents, sizes, strict=True):
        enter = root if parent is None else free[parent]
        if parent is None:
            root += size
        else:
            free[parent] += size
        enters.append(enter)
        free.append(enter + 1)
    return [(enter, enter + size) for enter, size in zip(enters, sizes, strict=True)]


def mask_function(tokens: Tokens) -> MaskFunction:
    """Who sees whom. Everything that differs between batches and layers is in the tensors."""
    enter, leave, position, earliest = tokens

    def sees(_: Any, __: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        below = (enter[key] <= enter[query]) & (enter[query] < leave[key])
        return below & (position[key] <= position[query]) & (position[key] >= earliest[query])

    return sees


def block_mask(tokens: Tokens) -> BlockMask:
    """The blocks in which somebody sees somebody, and of these those in which everybody does."""
    from torch.nn.attention.flex_attention import BlockMask

    sees = mask_function(tokens)
    length = len(tokens.enter)
    places = torch.arange(length, device=tokens.enter.device)
    strip = max(1, STRIP_ENTRIES // (length * BLOCK)) * BLOCK
    counts = torch.cat(
        [
            sees(None, None, rows[:, None], places[None, :])
            .view(-1, BLOCK, length // BLOCK, BLOCK)
            .sum(dim=(1, 3))
            for rows in torch.split(places, strip)
        ]
    )
    full = counts == BLOCK * BLOCK
    room = max(ROOM, 1 << (length - 1).bit_length())
    made: BlockMask = BlockMask.from_kv_blocks(
        *_listed((counts > 0) & ~full),
        *_listed(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_function(Tokens(*(F.pad(each, (0, room - length)) for each in tokens))),
    )
    return made


def _listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row of blocks how many are chosen, (1, 1, n), and these first, (1, 1, n, n)."""
    chosen = blocks.to(torch.int32)
    numbers = chosen.argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32)[None, None], numbers.to(torch.int32)[None, None]


def _sunk(output: torch.Tensor, further: AuxOutput, sinks: torch.Tensor) -> torch.Tensor:
    """Attention whose every softmax has a sink: its sum is not e^lse but e^lse + e^sink."""
    assert further.lse is not None, "asked for"
    share = torch.sigmoid(further.lse - sinks.to(further.lse.dtype).view(1, -1, 1))
    return (output * share.unsqueeze(-1)).to(output.dtype)


def _cap(softcap: float) -> Callable[..., torch.Tensor]:
    def cap(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return capped(score, softcap)

    return cap


def _in_one_type(*parts: torch.Tensor) -> list[torch.Tensor]:
    """As torch's own attention takes them under autocast; the kernel wants to be handed it."""
    device = parts[0].device.type
    if not torch.is_autocast_enabled(device) or parts[0].dtype == torch.float64:
        return list(parts)
    return [part.to(torch.get_autocast_dtype(device)) for part in parts]


class FlexibleLayout:
    """Implements `attention.Layout` for a packed batch whose attention is computed elsewhere."""

    def __init__(
        self,
        packed: PackedLayout,
        attend: Callable[..., torch.Tensor],
    ) -> None:
        """All but the attention is the business of `packed`."""
        self.attention = attend
        self.waves = packed.waves
        self.states = packed.states
