"""The way in which a network computes its decoding steps, and the next slower one.

From the fastest on: steps of a decoder recorded as graphs, the decoder called step by step, the
model's modules. A faster way is left for good, and it is said, where it cannot be taken or where
its results differ: that costs time, never what is sampled.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from training_gym.engines.local.arrangements import PackedWeights
from training_gym.engines.local.decoding import Decoder, is_plain
from training_gym.engines.local.dense import DenseWeights
from training_gym.engines.local.fixed_steps import FixedSteps
from training_gym.engines.local.graphs import CaptureFailedError, Recorder
from training_gym.engines.local.prepacked import available
from training_gym.engines.local.slot_layout import SlotLayout


class DecodingPath:
    """A decoder and what records its steps, as far as a model and a device have them."""

    def __init__(
        self,
        decoder: Decoder | None = None,
        steps: FixedSteps | None = None,
        *,
        packs: bool = False,
    ) -> None:
        """`steps` record those of `decoder`; without either, modules compute.

        `packs`: its weights are laid out for a CPU's matrix kernel.
        """
        self._decoder = decoder
        self._steps = steps
        self.packs = packs

    @property
    def name(self) -> str:
        """What steps are computed by: `graphs`, `copies`, `packed weights` or `modules`."""
        if self._decoder is None:
            return "modules"
        if self._steps is not None:
            return "graphs"
        return "packed weights" if self.packs else "copies"

    @property
    def by_modules(self) -> bool:
        """Whether there is no decoder."""
        return self._decoder is None

    @property
    def records(self) -> bool:
        """Whether steps are recorded: their caches have a scratch row."""
        return self._steps is not None

    def logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: SlotLayout, device: torch.device
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after one token in each of n rows, unless `by_modules`.

        They may be overwritten by the next step.
        """
        if self._steps is not None:
            try:
                return self._steps.logits(ids, layout.starts, layout.cache, device)
            except CaptureFailedError as error:
                self.leave(f"recording failed ({error})")
            except torch.OutOfMemoryError:
                self._steps.release()
                raise
        assert self._decoder is not None, "not by modules"
        return self._decoder.logits(ids.to(device), positions.to(device), layout)

    def leave(self, why: str) -> bool:
        """Take the next slower way from now on, and say so; False: there is none."""
        left = self.name
        if self._decoder is None:
            return False
        self.release()
        if self._steps is not None:
            self._steps = None
        else:
            self._decoder, self.packs = None, False
        print(  # noqa: T201 - becomes a log record
            f"decoding goes on by {self.name} instead of {left}, which is slower: {why}",
            file=sys.stderr,
            flush=True,
        )
        return True

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Steps inside are made as those that are recorded, and just run."""
        if self._steps is None:
            yield
            return
        self._steps.graphs.pauses = True
        try:
            yield
        finally:
            self._steps.graphs.pauses = False

    def outdate(self) -> None:
        """The weights have changed in a way that torch does not count."""
        if self._decoder is not None:
            self._decoder.outdate()

    def forget_recorded(self) -> None:
        """Give back the memory of recorded steps; their cache is given up."""
        if self._steps is not None:
            self._steps.release()

    def release(self) -> None:
        """Give back all memory that is kept beside the weights."""
        self.forget_recorded()
        if self._decoder is not None and self._decoder.holds_copies:
            self._decoder.release()


def fastest_path(
    causal_lm: Any, *, autocast: torch.dtype | None, recorder: Recorder | None
) -> DecodingPath:
    """For `causal_lm` computed in `autocast` (None: as it is); `recorder` None: none records."""
    if not is_plain(causal_lm):
        return DecodingPath()
    weight = causal_lm.get_input_embeddings().weight
    if autocast is None and available(weight):
        return DecodingPath(Decoder(causal_lm, PackedWeights), packs=True)
    if autocast is None and weight.device.type != "cuda":
        return DecodingPath()
    decoder = Decoder(causal_lm, functools.partial(DenseWeights, autocast or weight.dtype))
    if recorder is None:
        return DecodingPath(decoder)
    return DecodingPath(decoder, FixedSteps(decoder, causal_lm.config.vocab_size, recorder))
