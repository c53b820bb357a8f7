"""Our side: the embedded engine's sampler and trainer, a step for each line on stdin."""

import asyncio
import os
import sys
import time

from training_gym.engines.local.engine import ENVIRONMENT

# As the engine's job does, before torch is there; but threads wait for each other as the peer's do.
os.environ.update({k: v for k, v in ENVIRONMENT.items() if k != "GOMP_SPINCOUNT"})

import torch
from shapes import GROUP, PROMPTS, SHAPES, peak_memory_gib, prompts, tell, wait_for_turn

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.weights import load_codec, load_model
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Prompt, SampleKey, Sampling


def main(model: str, shape_name: str, threads: int, token_budget: int) -> None:
    torch.set_num_threads(threads)
    shape = SHAPES[shape_name]
    codec = load_codec(model)
    network = Network(load_model(model, dtype="float32", device="cpu"))
    texts = prompts(shape, lambda text: len(codec.encode(text)))
    asyncio.run(play(network, codec, shape, [codec.encode(text) for text in texts], token_budget))


async def play(network, codec, shape, encoded, token_budget) -> None:
    compute = Compute()
    sampler = LocalSampler(
        network,
        codec,
        compute,
        slots=PROMPTS * GROUP,
        max_sequence_tokens=shape.prompt_tokens + shape.longest + 1,
    )
    trainer = LocalTrainer(
        network, Recipe(), token_budget=token_budget, total_steps=100, save_weights=lambda _: None
    )
    tell(ready=True)
    step = 0
    while wait_for_turn():
        started = time.perf_counter()
        trajectories = await asyncio.gather(
            *(
                sample(sampler, encoded[i // GROUP], i, length, step)
                for i, length in enumerate(shape.lengths(step))
            )
        )
        await sampler.forget()  # as the learner does: the cache and the gradients do not meet
        sampled = time.perf_counter()
        batch = TrainingBatch(
            trajectories=trajectories,
            advantages=[[(-1.0) ** i] * len(t.token_ids) for i, t in enumerate(trajectories)],
            weights=[1.0] * len(trajectories),
        )
        await compute.run(trainer.step, batch)
        ended = time.perf_counter()
        step += 1
        tell(
            seconds=ended - started,
            sampling=sampled - started,
            training=ended - sampled,
            peak_gib=peak_memory_gib(),
        )
    compute.close()


async def sample(sampler, prompt, number, length, step):
    completion = await sampler.generate(
        Prompt(token_ids=tuple(prompt)),
        Sampling(min_tokens=length, max_tokens=length),
        SampleKey(seed=step, task=str(number // GROUP), member=number % GROUP),
    )
    count = len(completion.token_ids)
    assert count == length
    return Trajectory(
        token_ids=(*prompt, *completion.token_ids),
        flags=(PROMPT,) * len(prompt) + (SAMPLED,) * count,
        logprobs=(0.0,) * len(prompt) + tuple(completion.logprobs),
        versions=(0,) * (len(prompt) + count),
        prompt_length=len(prompt),
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
