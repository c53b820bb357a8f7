"""Reward per wall-clock second, ours beside TRL's: equal weights, batch shape, loss and optimizer.

    python benchmarks/reward_race.py --peer PYTHON-WITH-TRL
        [--tasks arithmetic,haiku] [--seeds 5] [--seconds 120] [--warm-steps 450] [--small]

For each seed both sides start from the same checkpoint and train for the same time, one after the
other in turns of who begins; loading does not count. Curves are mean rewards of the training
batches over the seconds of their steps, smoothed over five steps. Printed are the median time to
each of five reward levels, even between the start and the best that either side's median curve
reached (a level that was not reached counts as infinite), and the difference of the areas under
the curves, ours minus theirs, as mean reward over the time, with its bootstrap interval over seeds.

`arithmetic`: a model of 3 M parameters that has imitated a careless teacher practises sums.
`arithmetic-tiny`: the same with 0.1 M, where there is next to nothing to compute. `haiku`:
SmolLM2-135M, three lines of 5, 7 and 5 syllables. `sums`: arithmetic with SmolLM2-135M, shown two
sums. `--small` races arithmetic-tiny for seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent / "race"
sys.path.insert(0, str(HERE))

SHAPES = {
    "arithmetic": {
        "raw": True, "prompts": 16, "group": 8, "tokens": 5, "learning_rate": 2e-4,
        "peer_micro_batch": 128, "model": {"hidden_size": 256, "num_layers": 4},
    },
    "arithmetic-tiny": {
        "raw": True, "prompts": 16, "group": 8, "tokens": 5, "learning_rate": 5e-4,
        "peer_micro_batch": 128, "model": {},
    },
    "sums": {
        "raw": True, "prompts": 8, "group": 8, "tokens": 6, "learning_rate": 5e-6,
        "peer_micro_batch": 64,
    },
    "haiku": {
        "raw": False, "prompts": 2, "group": 8, "tokens": 32, "learning_rate": 5e-5,
        "peer_micro_batch": 16,
    },
}  # fmt: skip
SMOOTHED_STEPS = 5
LEVELS = 5
RESAMPLES = 10_000

Curve = list[tuple[float, float]]
"""Seconds since the start, and the smoothed reward by then."""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, help="a Python that has trl")
    parser.add_argument("--tasks", default="arithmetic,arithmetic-tiny,haiku")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--warm-steps", type=int, default=450)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args(arguments)
    if given.small:
        given.tasks, given.seeds = "arithmetic-tiny", min(given.seeds, 2)
        given.seconds, given.warm_steps = min(given.seconds, 10), min(given.warm_steps, 100)
    for task in given.tasks.split(","):
        race(task, given)


def race(task: str, given: argparse.Namespace) -> None:
    """All seeds of one task."""
    shape = {**SHAPES[task], "threads": given.threads}
    curves: dict[str, list[Curve]] = {"ours": [], "trl": []}
    pythons = {"ours": sys.executable, "trl": str(Path(given.peer).absolute())}
    scripts = {"ours": "ours.py", "trl": "peer.py"}
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as home:
            start = start_of(task, seed, given.warm_steps, Path(home))
            for side in sorted(curves, reverse=bool(seed % 2)):
                command = [pythons[side], scripts[side], start, str(seed), str(given.seconds)]
                done = subprocess.run(
                    [*command, json.dumps(shape)],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                    cwd=HERE,
                    env={**os.environ, "TRAINING_GYM_HOME": home, "RACE_TASK": task},
                )
                curves[side].append(smoothed(json.loads(done.stdout.splitlines()[-1])))
                reached = curves[side][-1]
                print(
                    f"  {task} seed {seed} {side}: {len(reached)} steps, "
                    f"{reached[0][1]:.3f} to {reached[-1][1]:.3f}",
                    flush=True,
                )
    show(task, curves, given.seconds)


def start_of(task: str, seed: int, steps: int, home: Path) -> str:
    """The folder that both sides start from."""
    os.environ["TRAINING_GYM_HOME"] = str(home)
    if task in ("haiku", "sums"):
        from training_gym.models.catalogue import resolve

        return str(resolve("smollm2-135m", say=lambda line: print(line, file=sys.stderr)))
    from tasks import careless, rows

    from training_gym import SFT, AdamW, LocalEngine, Recipe, TrainConfig
    from training_gym.spec.datasets import RowsDataset
    from training_gym.testing.tiny import tiny_model

    rate = 1e-3 if SHAPES[task]["model"] else 3e-3
    run = TrainConfig(
        name="race-start",
        model=tiny_model(home / "random", seed=seed, num_kv_heads=4, **SHAPES[task]["model"]),
        dataset=RowsDataset.of(careless(rows(task), seed), input_format="raw"),
        recipe=Recipe(
            algorithm=SFT(),
            num_steps=steps,
            prompts_per_batch=64,
            group_size=1,
            optimizer=AdamW(learning_rate=rate, schedule="cosine", warmup_steps=10),
            checkpoints={"every": None},
            seed=seed,
            engine=LocalEngine(device="cpu", threads=1),
        ),
    ).train()
    assert run.result is not None
    assert run.result.checkpoint is not None
    return str(run.result.checkpoint.path)


def smoothed(steps: Sequence[tuple[float, float]]) -> Curve:
    """A curve from the seconds and the mean reward of each step."""
    curve: Curve = []
    passed = 0.0
    for number, (seconds, _) in enumerate(steps):
        passed += seconds
        last = [reward for _, reward in steps[max(0, number - SMOOTHED_STEPS + 1) : number + 1]]
        curve.append((passed, statistics.fmean(last)))
    return curve


def show(task: str, curves: dict[str, list[Curve]], seconds: float) -> None:
    """Times to the levels, and the difference of the areas."""
    start = statistics.median(curve[0][1] for side in curves.values() for curve in side)
    best = max(
        statistics.median(max(reward for _, reward in curve) for curve in side)
        for side in curves.values()
    )
    print(f"\n{task}: median seconds to a reward of …")
    for number in range(1, LEVELS + 1):
        level = start + (best - start) * number / LEVELS * 0.98
        times = {
            side: statistics.median(time_to(curve, level) for curve in found)
            for side, found in curves.items()
        }
        ratio = times["trl"] / times["ours"] if math.isfinite(times["ours"]) else math.nan
        said = "  ".join(f"{side} {time:7.1f} s" for side, time in times.items())
        print(f"  {level:5.3f}  {said}  {ratio:5.2f}×")
    pairs = zip(curves["ours"], curves["trl"], strict=True)
    differences = [area(ours, seconds) - area(theirs, seconds) for ours, theirs in pairs]
    low, high = bootstrap(differences)
    mean = statistics.fmean(differences)
    print(f"  area under the curve, ours minus theirs: {mean:+.4f}  95 % [{low:+.4f}, {high:+.4f}]")


def time_to(curve: Curve, level: float) -> float:
    """Seconds until the reward first reaches the level; infinite if it never does."""
    return next((passed for passed, reward in curve if reward >= level), math.inf)


def area(curve: Curve, seconds: float) -> float:
    """Mean reward over the time: each step's holds until the next one ends."""
    total, since, reward = 0.0, 0.0, curve[0][1]
    for passed, following in curve:
        until = min(passed, seconds)
        total += reward * (until - since)
        since, reward = until, following
    return (total + reward * max(seconds - since, 0.0)) / seconds


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """Percentile interval of the mean over resampled seeds (Efron 1979)."""
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


if __name__ == "__main__":
    main(sys.argv[1:])
