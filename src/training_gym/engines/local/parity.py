"""The passes in which training and sampling compute, compared with the model's own forward.

That they agree is not assumed but checked when a model is loaded, on one short sequence, on the
very path that will be taken: a packed row, then steps over the cache, recorded and replayed where
steps are recorded. Where they do not, decoding turns to slower ways, and at last the network to
computing sequences whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from training_gym.engines.local.attention import Layout, PackedLayout, Segment
from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.flexible import kernels_for
from training_gym.engines.local.packed_path import PackedPath, proven_path
from training_gym.engines.local.paths import DecodingPath
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.spec.errors import ModelError

PARITY_TOLERANCE = 3e-4
"""Largest difference of a log-probability from the model's own forward, in float32."""

HALF_TOLERANCE = 0.5
"""The same in bfloat16."""

NEAR_FACTOR, NEAR_LEAST = 3.0, 0.01
"""A faster way of decoding in bfloat16 is at most so many times as far off, in the mean, as the
modules are, and so much more."""

REPLAY_SHARE, REPLAY_LEAST = 0.5, 1e-5
"""Replayed steps are at most such a share of their distance from the truth away from the same steps
that just run, in the mean, and so much more."""

NUM_TOKENS = 12
"""Of the sequence."""

ENTRIES = ((8, 0), (3, 0), (2, 0), (5, 0))
"""Tokens that four rows take in at once, and those they hold before."""

STEPS = ((8, 3, 2), (9, 4, 3), (10, 5, 4), (11, 6, 5, 5))
"""Tokens that the rows of each step hold. Three rows are computed as four where steps are recorded:
the first step just runs, the second is recorded, the others are replayed with other inputs. The
fourth row was warm meanwhile: it tells whether what is computed for nobody has damaged it."""


class Passes(Protocol):
    """A network as far as its passes are asked for."""

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        ...

    def cache(self, num_rows: int) -> SlotCache:
        """An empty cache such as its passes need."""
        ...

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Last hidden states (N, hidden) of N packed tokens."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) in float32 of hidden states (n, hidden)."""
        ...

    def next_logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: SlotLayout
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after one token in each of n rows."""
        ...


class Checked(Passes, Protocol):
    """A network as far as it can turn to other ways of computing."""

    model: Any
    vocab_size: int
    autocast: torch.dtype | None
    packs: bool
    decoding: DecodingPath
    packing: PackedPath

    @property
    def kind(self) -> str:
        """The model's type."""
        ...

    def own_logprobs(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (n, vocabulary) of ids (n,) by the model's own forward."""
        ...

    def decode_slower(self, why: str) -> bool:
        """Take the next slower way of decoding; False: there is none."""
        ...

    def stop_packing(self, why: str) -> None:
        """Compute sequences whole from now on."""
        ...


@dataclass(frozen=True)
class Distance:
    """How far log-probabilities are from those of the model's own forward."""

    greatest: float
    mean: float
    """Of the place where it is greatest."""


@torch.no_grad()
def check(network: Checked) -> float:
    """Compare with the model's own forward; the largest difference of a log-probability.

    Both in float32, where anything but rounding shows, and then as the network computes. Where they
    disagree, or the layers do not take a layout, the network turns to what agrees, and says so.

    Raises `ModelError` where nothing does: such a model would be trained on something else than it
    computes.
    """
    ids = torch.arange(1, 1 + NUM_TOKENS, device=network.device) * 7 % network.vocab_size
    was_training, precision, path = network.model.training, network.autocast, network.decoding
    network.model.eval()
    network.packing = PackedPath()
    exact = network.model.dtype not in (torch.bfloat16, torch.float16)
    try:
        network.autocast = None
        expected = network.own_logprobs(ids)
        if precision is not None:
            network.decoding = DecodingPath()  # the faster one computes in half precision
        widest = PARITY_TOLERANCE if exact else HALF_TOLERANCE
        found, why = _settled(network, ids, expected, Distance(widest, widest))
        if why and network.packs:
            network.stop_packing(why)
            found, why = _settled(network, ids, expected, Distance(widest, widest))
        if precision is not None and not why:
            network.autocast = precision
            found, why = _in_half(network, ids, expected, path)
        by_kernel = _by_kernel(network, ids, expected) if network.packs and not why else 0.0
    finally:
        network.autocast = precision
        network.model.train(was_training)
    if why:
        raise ModelError(
            f"the embedded engine cannot run models of type {network.kind!r}: {why}",
            fix="choose another model, such as smollm2-135m",
        )
    return max(found.greatest, by_kernel)


def _in_half(
    network: Checked, ids: torch.Tensor, expected: torch.Tensor, path: DecodingPath
) -> tuple[Distance, str]:
    """Compare the modules in half precision, and then the faster `path` with them."""
    found, why = _settled(network, ids, expected, Distance(HALF_TOLERANCE, HALF_TOLERANCE))
    if why or not network.packs or path.by_modules:
        return found, why
    network.decoding = path
    near = Distance(HALF_TOLERANCE, NEAR_FACTOR * found.mean + NEAR_LEAST)
    return _settled(network, ids, expected, near)


def _by_kernel(network: Checked, ids: torch.Tensor, expected: torch.Tensor) -> float:
    """Turn to one kernel for packed sequences where there is one and it agrees.

    Returns how far it is from `expected`; 0 where it is not taken.
    """
    network.packing = proven_path(network, kernels_for(network.device))
    if not network.packing.by_kernel:
        return 0.0
    apart = float((packed_logprobs(network, ids) - expected).abs().max())
    half = network.autocast is not None or network.model.dtype in (torch.bfloat16, torch.float16)
    if not apart <= (HALF_TOLERANCE if half else PARITY_TOLERANCE):
        network.packing.leave(
            f"log-probabilities differ by {apart:.2g} from the model's own forward"
        )
        return 0.0
    return apart


def _settled(
    network: Checked, ids: torch.Tensor, expected: torch.Tensor, tolerance: Distance
) -> tuple[Distance, str]:
    """Compare, by slower and slower ways of decoding while they disagree."""
    found, why = _compared(network, ids, expected, tolerance)
    while why and network.decode_slower(why):
        found, why = _compared(network, ids, expected, tolerance)
    return found, why


def _compared(
    network: Checked, ids: torch.Tensor, expected: torch.Tensor, tolerance: Distance
) -> tuple[Distance, str]:
    """How far all passes are from `expected`, and what is wrong; an empty text: nothing."""
    nowhere = Distance(float("nan"), float("nan"))
    try:
        found = distance(network, ids, expected)
        repeated = _repeated(network, ids, found)
    except (TypeError, AttributeError, NotImplementedError, KeyError, ValueError) as error:
        return nowhere, f"its layers do not take a layout ({error})"
    except RuntimeError as error:
        if network.decoding.by_modules:
            raise
        return nowhere, f"it fails ({str(error).partition(chr(10))[0]})"
    if not (found.greatest <= tolerance.greatest and found.mean <= tolerance.mean):
        return found, f"log-probabilities differ by {found.greatest:.2g} from its own forward"
    return found, repeated


def _repeated(network: Checked, ids: torch.Tensor, found: Distance) -> str:
    """What is wrong with replayed steps beside the same ones that just run.

    Kernels and shapes are equal, so they should agree to the bit; where a device does not repeat
    itself, they are nearer to each other than what they compute is to the truth.
    """
    if not network.decoding.records:
        return ""
    replayed = stepped_logprobs(network, ids)
    with network.decoding.unrecorded():
        ran = stepped_logprobs(network, ids)
    pairs = zip(replayed, ran, strict=True)
    apart = max(float((one - other).abs().mean()) for (_, one), (_, other) in pairs)
    if apart <= REPLAY_SHARE * found.mean + REPLAY_LEAST:
        return ""
    return f"replayed steps differ by {apart:.2g} from the same steps when they run"


def distance(network: Passes, ids: torch.Tensor, expected: torch.Tensor) -> Distance:
    """Of all passes over `ids` (12,), from `expected` (12, vocabulary)."""
    apart = [packed_logprobs(network, ids) - expected]
    apart += [found - expected[place] for place, found in stepped_logprobs(network, ids)]
    return Distance(
        max(float(each.abs().max()) for each in apart),
        max(float(each.abs().mean()) for each in apart),
    )


def packed_logprobs(network: Passes, ids: torch.Tensor) -> torch.Tensor:
    """Six tokens that two segments continue: three others, and the rest."""
    packed = torch.cat([ids[:6], ids[:3], ids[6:]])
    positions = torch.tensor([*range(6), 6, 7, 8, *range(6, 12)], device=network.device)
    layout = PackedLayout((Segment(0, 6), Segment(6, 3, (0,), 6), Segment(9, 6, (0,), 6)))
    logprobs = network.logits(network.hidden(packed, positions, layout)).log_softmax(-1)
    return torch.cat([logprobs[:6], logprobs[9:]])


def stepped_logprobs(network: Passes, ids: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
    """Beginnings of different lengths at once, then step by step: places, and (vocabulary,) each.

    Every row holds a beginning of `ids`.
    """
    cache = network.cache(len(ENTRIES))
    cache.reserve(NUM_TOKENS)
    lengths, starts = (tuple(each) for each in zip(*ENTRIES, strict=True))
    places = [place for length in lengths for place in range(length)]
    positions = torch.tensor(places, device=network.device)
    layout = SlotLayout(cache, rows=tuple(range(len(lengths))), lengths=lengths, starts=starts)
    logits = network.logits(network.hidden(ids[positions], positions, layout))
    found = list(zip(places, logits.log_softmax(-1), strict=True))
    for held in STEPS:
        positions = torch.tensor(held, device=network.device)
        rows = tuple(range(len(held)))
        layout = SlotLayout(cache, rows=rows, lengths=(1,) * len(held), starts=held)
        logprobs = network.next_logits(ids[positions], positions, layout).log_softmax(-1)
        found += zip(held, logprobs, strict=True)
    return found
