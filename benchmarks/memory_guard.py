"""The memory guard's predictions beside measured peaks, by phase, in a process of this model's own.

    python benchmarks/memory_guard.py [--model smollm2-135m] [--tokens 512,1024] [--slots 16]

One update per micro-batch size, smallest first, after sampling once; each line is predicted peak,
measured peak (resident size) and their ratio, before anything was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GIB = 2.0**30
PROMPT, ANSWER = 40, 48


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", default="512,1024")
    parser.add_argument("--slots", type=int, default=16)
    given = parser.parse_args(arguments)
    asyncio.run(measure(given))


async def measure(given: argparse.Namespace) -> None:
    """Load, sample, update; a line for each."""
    from training_gym import LocalEngine, Recipe, TrainConfig
    from training_gym.engines.local.compute import Compute
    from training_gym.engines.local.guard import MemoryGuard
    from training_gym.engines.local.meters import ProcessMeter
    from training_gym.engines.local.network import Network
    from training_gym.engines.local.sampler import LocalSampler
    from training_gym.engines.local.trainer import LocalTrainer
    from training_gym.launch import prepare
    from training_gym.models.catalogue import resolve
    from training_gym.models.weights import load_model
    from training_gym.planning.phases import footprint
    from training_gym.spec.sampling import Prompt, SampleKey, Sampling

    folder = resolve(given.model, say=lambda line: print(line, file=sys.stderr))
    config = TrainConfig(
        model=given.model,
        dataset=[{"prompt": "a"}],
        reward=reward,
        recipe=Recipe(engine=LocalEngine(device="cpu", threads=1)),
    )
    plan = prepare(config).plan
    network = Network(load_model(Path(folder), dtype="float32", device="cpu"))
    network.model.eval()
    network.check_parity()  # all weights are in memory from here on, as in the engine
    network.release()
    meter, compute = ProcessMeter(), Compute()
    sizes = [int(size) for size in given.tokens.split(",")]
    guard = MemoryGuard(footprint(plan), meter, token_budget=max(sizes), say=lambda *_, **__: None)
    length = PROMPT + ANSWER
    codec = type("Codec", (), {"stop_ids": frozenset()})()
    sampler = LocalSampler(
        network, codec, compute, slots=given.slots, max_sequence_tokens=length + 1
    )
    meter.begin()
    sampling = Sampling(max_tokens=8)
    prompts = [tuple(range(10 + n, 10 + n + length - 8)) for n in range(given.slots)]
    await asyncio.gather(
        *(
            sampler.generate(Prompt(token_ids=ids), sampling, SampleKey(seed=0, task=str(n)))
            for n, ids in enumerate(prompts)
        )
    )
    base, terms = guard._loaded, footprint(plan)
    predicted = base + terms.sampling(given.slots, length) - terms.moments
    say(f"sampling {given.slots} rows", predicted, meter.peak())
    await sampler.forget()
    trainer = LocalTrainer(
        network, plan.run.recipe, token_budget=max(sizes), total_steps=9, save_weights=print
    )
    for size in sizes:
        guard = MemoryGuard(terms, meter, token_budget=size, say=lambda *_, **__: None)
        guard._loaded = base
        trainer.guard = guard
        metrics = await compute.run(trainer.step, batch(size))
        found = [metrics[f"training_{kind}peak_memory_gib"] * GIB for kind in ("predicted_", "")]
        say(f"training {size} tokens", *found)
    compute.close()


def reward(episode: Any) -> float:
    """Any."""
    return 0.0


def batch(size: int) -> Any:
    """Groups of eight answers that fill a micro-batch of `size` tokens."""
    from training_gym.spec.engine import TrainingBatch
    from training_gym.spec.episodes import PROMPT as SHOWN
    from training_gym.spec.episodes import SAMPLED, Trajectory

    group = PROMPT + 8 * ANSWER
    rows = [
        Trajectory(
            token_ids=(*range(5 + number, 5 + number + PROMPT), *range(9, 9 + ANSWER)),
            flags=(SHOWN,) * PROMPT + (SAMPLED,) * ANSWER,
            logprobs=(0.0,) * PROMPT + (-5.0,) * ANSWER,
            versions=(-1,) * PROMPT + (0,) * ANSWER,
            prompt_length=PROMPT,
        )
        for number in range(max(1, size // group))
        for _ in range(8)
    ]
    return TrainingBatch(
        trajectories=tuple(rows),
        advantages=tuple(((-1.0) ** n,) * (PROMPT + ANSWER) for n in range(len(rows))),
        weights=(1.0,) * len(rows),
    )


def say(phase: str, predicted: float, measured: float) -> None:
    """A line of the table."""
    ratio = predicted / measured
    print(
        f"{phase:24} predicted {predicted / GIB:5.2f}  measured {measured / GIB:5.2f} GiB  "
        f"{ratio:4.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
