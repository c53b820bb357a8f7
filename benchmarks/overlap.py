"""What overlapping rollouts with training gains: `max_staleness` against strictly on-policy.

    python benchmarks/overlap.py [--rounds 3] [--steps 10] [--sleep 0.3] [--staleness 1,2]

Two shapes, a random model of 0.1 M parameters, settings taking turns: an environment that sleeps
before each of two turns, where the sampler waits for it unless other groups are in play, and a
single turn without any waiting, where sampling and training want the same cores. Printed are
medians over the rounds of seconds a step, the ratio to strictly on-policy, the sampler's busy share
of a step, the mean lag and what the old keys and values cost.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHAPES = ("sleeping", "computing")


class Sleepy:
    """Two turns, each of which the policy waits for, as for a tool."""

    async def run(self, task: Any, policy: Any, ctx: Any) -> Any:
        from training_gym import Outcome
        from training_gym.spec.messages import user

        seconds = float(os.environ["OVERLAP_SLEEP_S"])
        await asyncio.sleep(seconds * ctx.rng.uniform(0.5, 1.5))
        reply = await policy.chat(task.prompt)
        await asyncio.sleep(seconds * ctx.rng.uniform(0.5, 1.5))
        await policy.chat([*task.prompt, reply, user("Again.")])
        return Outcome()


def reward(episode: Any) -> float:
    """Different for different answers."""
    return len(set(episode.completion)) / 10


def config(model: Path, shape: str, staleness: int, steps: int) -> Any:
    from training_gym import LocalEngine, Recipe, TrainConfig

    rows = [{"prompt": f"Say {number}."} for number in range(64)]
    sleeping = shape == "sleeping"
    return TrainConfig(
        name=f"overlap-{shape}-{staleness}",
        model=model,
        dataset=rows,
        reward=reward,
        environment=Sleepy if sleeping else None,
        recipe=Recipe(
            num_steps=steps,
            prompts_per_batch=4,
            group_size=8,
            max_response_tokens=24 if sleeping else 96,
            max_staleness=staleness,
            checkpoints={"every": None},
            engine=LocalEngine(device="cpu", threads=1, deterministic=False, token_budget=512),
        ),
    )


def measure(model: Path, shape: str, staleness: int, steps: int) -> dict[str, float]:
    """Medians over a run's steps; the first ones fill the pipe."""
    from training_gym.records.readers import read_stream
    from training_gym.records.run_directory import RunDirectory

    run = config(model, shape, staleness, steps).train()
    found = [record["values"] for record in read_stream(RunDirectory(run.path), "metrics")][3:]
    total = sum(values["step_seconds"] for values in found)
    return {
        "seconds": total / len(found),
        "busy": sum(values["sampler_busy_seconds"] for values in found) / total,
        "lag": statistics.fmean(values.get("policy_lag_mean", 0.0) for values in found),
        "cache": statistics.fmean(values.get("cache_mismatch_mean", 0.0) for values in found),
        "pure": statistics.fmean(values.get("sampler_mismatch_mean", 0.0) for values in found),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--sleep", type=float, default=0.3)
    parser.add_argument("--staleness", default="1,2")
    given = parser.parse_args(arguments)
    os.environ["OVERLAP_SLEEP_S"] = str(given.sleep)
    bounds = [0, *map(int, given.staleness.split(","))]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRAINING_GYM_HOME"] = folder
        from training_gym.testing.tiny import tiny_model

        model = tiny_model(Path(folder) / "model")
        for shape in SHAPES:
            seen: dict[int, list[dict[str, float]]] = {bound: [] for bound in bounds}
            for _ in range(given.rounds):
                for bound in bounds:
                    seen[bound].append(measure(model, shape, bound, given.steps))
            show(shape, seen)


def show(shape: str, seen: dict[int, list[dict[str, float]]]) -> None:
    def middle(bound: int, name: str) -> float:
        return statistics.median(found[name] for found in seen[bound])

    print(f"\n{shape}: seconds a step, ratio, sampler busy, mean lag, mismatch behind an update")
    for bound in seen:
        seconds = middle(bound, "seconds")
        print(
            f"  max_staleness={bound}  {seconds:6.2f} s  {middle(0, 'seconds') / seconds:5.2f}x  "
            f"{middle(bound, 'busy'):4.0%}  {middle(bound, 'lag'):4.2f}  "
            f"{middle(bound, 'cache'):.1e} (pure {middle(bound, 'pure'):.1e})",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
