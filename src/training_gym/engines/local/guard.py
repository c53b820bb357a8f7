"""The memory guard: a phase is predicted before it runs, and made smaller where it does not fit.

On a CPU there is no error to catch: who takes too much is killed. So what the planner predicts is
corrected by measured peaks, and held against what the process can still get. On an accelerator a
failed allocation is an error; then the micro-batch is halved and the update made again.

How an update is cut into micro-batches never changes its gradient but for rounding.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from training_gym.engines.local.meters import Meter
from training_gym.planning.phases import Footprint
from training_gym.spec.errors import EngineError

GIB = 2.0**30

TOLERANCE = 0.35
"""A prediction that nothing was measured for yet is an upper one, by so much at most."""

SLACK_BYTES = 128 * 2**20
"""What interpreter and allocator gather in passing; not taken for activations."""

MARGIN = 1.1
"""Measured peaks are taken for so much more: the next batch may be packed less well."""

Say = Callable[..., None]
"""Records an event: `say(kind, **fields)`."""


class MemoryGuard:
    """Decides how much of a phase is done at once."""

    def __init__(self, footprint: Footprint, meter: Meter, *, token_budget: int, say: Say) -> None:
        """Make it when the model is loaded: all else is counted on top of what is in use then."""
        self._footprint = footprint
        self._meter = meter
        self._token_budget = token_budget
        self._say = say
        self._loaded = meter.used()
        self._correction = 1.0
        self._measured = False
        self._kept = 0.0
        self._give_up: Callable[[], None] = lambda: None

    def sampling_slots(self, slots: int, tokens: int) -> int:
        """How many of `slots` sequences of `tokens` to sample at once.

        Raises `EngineError` where not even one fits.
        """
        ceiling, asked = self._ceiling(), slots
        while slots > 1 and self._loaded + self._footprint.sampling(slots, tokens) > ceiling:
            slots = -(-slots // 2)
        least = self._loaded + self._footprint.sampling(slots, tokens)
        if least > (1 + TOLERANCE) * ceiling:
            raise EngineError(
                f"sampling one sequence of {tokens} tokens needs {least / GIB:.2f} GiB, "
                f"{ceiling / GIB:.2f} GiB can be had",
                fix="lower max_response_tokens or max_prompt_tokens, or free memory",
            )
        if slots < asked:
            self._say("memory_shrunk", phase="sampling", slots=slots, planned=asked)
        return slots

    def retains(self, slots: int, tokens: int, give_up: Callable[[], None]) -> bool:
        """Whether what sampling keeps can stay in memory while it trains.

        That is the weights laid out, the cache and recorded steps. `give_up` is called once an
        update needs their memory; from then on they are counted no more.
        """
        kept = self._footprint.kept(slots, tokens)
        if self._training(self._token_budget) + kept > self._ceiling():
            return False
        self._kept, self._give_up = kept, give_up
        return True

    def token_budget(self, longest: int) -> int:
        """Packed tokens of the next update's micro-batches, whose longest row has `longest`.

        An update begins with it, for the peak's sake.

        Raises `EngineError` where that row alone does not fit.
        """
        self._meter.begin()
        ceiling = self._ceiling()
        if self._kept and self._training(self._token_budget) > ceiling:
            self._give_up_kept("predicted")
        while self._token_budget > longest and self._training(self._token_budget) > ceiling:
            self._shrink("predicted", longest)
        least = self._training(max(longest, 1))
        if least > (1 if self._measured else 1 + TOLERANCE) * ceiling:
            raise self._too_long(longest, least, ceiling)
        return self._token_budget

    def training_peak(self, tokens: int) -> dict[str, float]:
        """An update is made whose largest micro-batch had `tokens`: learn from it, and tell."""
        peak = self._meter.peak()
        predicted = self._training(tokens)
        others = self._loaded + self._kept + self._footprint.training_fixed(tokens) + SLACK_BYTES
        self._correction = max(
            (peak - others) / (tokens * self._footprint.per_packed_token) * MARGIN,
            self._correction if self._measured else 0.1,
        )
        self._measured = True
        return {
            "training_peak_memory_gib": peak / GIB,
            "training_predicted_peak_memory_gib": predicted / GIB,
        }

    def after_failure(self, longest: int) -> int:
        """An allocation failed: the micro-batches to repeat the update with.

        They are smaller unless memory was kept for sampling until now.

        Raises `EngineError` where they cannot be smaller.
        """
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self._kept:
            self._give_up_kept("failed")
            return self._token_budget
        if self._token_budget <= longest:
            raise self._too_long(longest, self._training(longest), self._ceiling())
        self._shrink("failed", longest)
        return self._token_budget

    def _training(self, tokens: int) -> float:
        footprint = self._footprint
        activations = self._correction * tokens * footprint.per_packed_token
        fixed = self._loaded + self._kept + footprint.training_fixed(tokens)
        return fixed + activations + SLACK_BYTES

    def _ceiling(self) -> int:
        """The most that can be in use."""
        return self._meter.used() + self._meter.room()

    def _give_up_kept(self, why: str) -> None:
        """Have sampling keep nothing from one batch to the next any more."""
        self._say("memory_shrunk", phase="training", why=why, kept_gib=self._kept / GIB)
        self._kept = 0.0
        self._give_up()

    def _shrink(self, why: str, longest: int) -> None:
        planned, self._token_budget = self._token_budget, max(self._token_budget // 2, longest)
        self._say(
            "memory_shrunk",
            phase="training",
            why=why,
            token_budget=self._token_budget,
            planned=planned,
        )

    def _too_long(self, longest: int, needed: float, ceiling: float) -> EngineError:
        return EngineError(
            f"an update from an episode of {longest} tokens needs {needed / GIB:.2f} GiB, "
            f"{ceiling / GIB:.2f} GiB can be had",
            fix="lower max_response_tokens or max_prompt_tokens, train an adapter "
            "(adapter=Lora()), or free memory",
        )
