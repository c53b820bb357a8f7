"""Is the sampler busy while environments wait? A real sampler, real sleeping, more episodes.

    python benchmarks/waiting.py

A tiny model with one cache row answers one request at a time; the environment sleeps ten times as
long as an answer takes. Measured is until the first episode is over: as long as all are in flight.
With C episodes in flight, generation g and environment e, the share of
the time that the sampler computes can be min(1, C·g/(g+e)) and no more. g is what it was in that
very run, since a busy machine changes it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time

import torch

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.environments.turn_based import Turn, TurnBased
from training_gym.models.weights import load_codec, load_model
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.spec.episodes import Counters
from training_gym.spec.messages import user
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task
from training_gym.testing.tiny import tiny_model

TURNS, TOKENS, RATIO = 12, 40, 10
TASK = Task(id="t", prompt=(user("Go on."),), split_key="t")
SAMPLING = Sampling(max_tokens=TOKENS, min_tokens=TOKENS)


class Timed(Compute):
    """Counts the seconds in which it computes."""

    busy_s = 0.0

    async def run(self, function, *args, **kwargs):
        def timed(*args, **kwargs):
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.busy_s += time.perf_counter() - started

        return await super().run(timed, *args, **kwargs)


class Sleeps(TurnBased):
    max_turns = TURNS

    def __init__(self, seconds: float, compute: Timed) -> None:
        self.seconds = seconds
        self.compute = compute
        self.until: tuple[float, float, int] | None = None
        """When the first episode ended, what had been computed then, for how many answers."""
        self.answers = 0

    def reset(self, task, ctx):
        return {"turn": 0}, ""

    async def step(self, state, text, ctx):
        self.answers += 1
        await asyncio.sleep(self.seconds)
        state["turn"] += 1
        if state["turn"] == TURNS and self.until is None:
            self.until = time.perf_counter(), self.compute.busy_s, self.answers
        return Turn("More.", done=state["turn"] == TURNS)


async def measure(network, codec, episodes: int, sleep_s: float) -> dict[str, float]:
    compute = Timed()
    sampler = LocalSampler(
        network, codec, compute, slots=1, max_sequence_tokens=2000, deterministic=False
    )
    environment = Sleeps(sleep_s, compute)
    runner = EpisodeRunner(
        SampledPlayers(sampler, codec, seed=0),
        environment,
        seed=0,
        limits=Limits(TURNS, 600.0),
    )
    attempts = [Attempt(TASK, member, 0, "train", "g") for member in range(episodes)]
    started = time.perf_counter()
    await runner.play_group(attempts, SAMPLING, Counters())
    assert environment.until is not None
    ended, busy_s, answers = environment.until
    wall_s = ended - started
    await sampler.close()
    compute.close()
    answer_s = busy_s / answers
    possible = min(1.0, episodes * answer_s / (answer_s + sleep_s))
    return {
        "episodes": episodes,
        "answer_s": answer_s,
        "sleep_s": sleep_s,
        "busy": busy_s / wall_s,
        "possible": possible,
    }


async def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_model(folder)
        model = load_model(path, dtype="float32", device="cpu")
        model.eval()
        network, codec = Network(model), load_codec(path)
        await measure(network, codec, 1, 0.01)  # warm-up
        alone = await measure(network, codec, 1, 0.01)
        for episodes in (1, 2, 4, 8, 11, 16, 22):
            found = await measure(network, codec, episodes, RATIO * alone["answer_s"])
            found["reached"] = found["busy"] / found["possible"]
            sys.stdout.write(json.dumps({k: round(v, 4) for k, v in found.items()}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
