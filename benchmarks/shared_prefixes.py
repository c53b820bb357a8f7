"""Attention of a decoding step: a group's prompt read once, beside each row reading its own copy.

    python benchmarks/shared_prefixes.py [--model 135m|small] [--prompts 40,256,1024] [--threads 1]

32 rows in groups of 8 (`--groups 4`), each 32 tokens into its answer; the layers of SmolLM2-135M,
or those of the small model of `grpo_step.py`. Both ways take turns on the same cache; printed are
medians of the time for all layers of one step, and the speed-up. `40+256+100+180` gives the groups
prompts of different lengths. `--cpu-time` counts the processor's time instead of the
clock's, for one thread on a machine that others use.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch

from training_gym.engines.local import shared_prefixes
from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.kernels import LayerOptions
from training_gym.engines.local.shared_prefixes import SharedPrefix
from training_gym.engines.local.slot_layout import SlotLayout

SHAPES = {"135m": (30, 9, 3, 64), "small": (6, 4, 2, 16)}
"""Layers, heads, key heads, width of a head."""

ROWS = 32
ANSWER_TOKENS = 32


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    for prompts in arguments.prompts.split(","):
        lengths = [int(length) for length in prompts.split("+")]
        with torch.inference_mode():
            report(prompts, measure(arguments, lengths, clock))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="135m")
    parser.add_argument("--prompts", default="40,256,1024,40+256+100+180")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu-time", action="store_true")
    return parser.parse_args()


def measure(
    arguments: argparse.Namespace, lengths: list[int], clock: Callable[[], float]
) -> dict[str, float]:
    """Median seconds of a step's attention, both ways; they are compared first."""
    layers, heads, key_heads, width = SHAPES[arguments.model]
    groups = arguments.groups
    # As rows are given: first one of each group, then the others group by group.
    members = [*range(groups), *(g for g in range(groups) for _ in range(ROWS // groups - 1))]
    prompts = [lengths[group % len(lengths)] for group in range(groups)]
    starts = tuple(prompts[group] + ANSWER_TOKENS for group in members)
    prefixes = tuple(
        SharedPrefix(tuple(r for r, g in enumerate(members) if g == group), prompts[group])
        for group in range(groups)
    )
    cache = SlotCache(ROWS)
    cache.reserve(max(starts) + 1)
    for layer in range(layers):
        for row, start in enumerate(starts):
            cache.write(layer, row, 0, *(torch.randn(key_heads, start, width) for _ in range(2)))
    for prefix in prefixes:
        for row in prefix.rows[1:]:
            cache.copy(prefix.rows[0], row, prefix.length)
    new = [torch.randn(ROWS, count, width) for count in (heads, key_heads, key_heads)]

    def step(shared: bool) -> torch.Tensor:
        layout = SlotLayout(
            cache, tuple(range(ROWS)), (1,) * ROWS, starts, prefixes=prefixes if shared else ()
        )
        for layer in range(layers):
            found = layout.decode(*new, LayerOptions(layer, width**-0.5))
        return found

    with mock.patch.object(shared_prefixes, "WORTH_NUMBERS", 0):
        torch.testing.assert_close(step(True), step(False), rtol=1e-4, atol=1e-5)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(arguments.rounds):
            for shared, times in seconds.items():
                started = clock()
                step(shared)
                times.append(clock() - started)
    spared = sum((len(p.rows) - 1) * p.length for p in prefixes) * key_heads * width / groups
    return {
        "own": statistics.median(seconds[False]),
        "shared": statistics.median(seconds[True]),
        "spared": spared,
    }


def report(prompts: str, found: dict[str, float]) -> None:
    taken = "taken" if found["spared"] >= shared_prefixes.WORTH_NUMBERS else "not taken"
    print(
        f"prompts of {prompts:>15}: own copies {found['own'] * 1e3:7.1f} ms, "
        f"shared {found['shared'] * 1e3:7.1f} ms, {found['own'] / found['shared']:5.2f}×, {taken}",
        flush=True,
    )


if __name__ == "__main__":
    main()
