"""Our side of `sampling.py`: the embedded engine's sampler, a round for each line on stdin."""

import asyncio
import os
import sys
import time

from training_gym.engines.local.engine import ENVIRONMENT

# As the engine's job does, before torch is there; but threads wait for each other as the peer's do.
os.environ.update({k: v for k, v in ENVIRONMENT.items() if k != "GOMP_SPINCOUNT"})

import torch
from ours import sample
from shapes import GROUP, PROMPTS, SHAPES, peak_memory_gib, prompts, tell, wait_for_turn

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.models.weights import load_codec, load_model


async def main(model: str, shape_name: str, threads: int) -> None:
    torch.set_num_threads(threads)
    shape = SHAPES[shape_name]
    codec, compute = load_codec(model), Compute()
    network = Network(load_model(model, dtype="float32", device="cpu"))
    texts = prompts(shape, lambda text: len(codec.encode(text)))
    encoded = [codec.encode(text) for text in texts]
    sampler = LocalSampler(
        network,
        codec,
        compute,
        slots=PROMPTS * GROUP,
        max_sequence_tokens=shape.prompt_tokens + shape.longest + 1,
    )
    tell(ready=True)
    number = 0
    while wait_for_turn():
        await sampler.forget()
        started = time.perf_counter()
        await asyncio.gather(
            *(
                sample(sampler, encoded[i // GROUP], i, length, number)
                for i, length in enumerate(shape.lengths(number))
            )
        )
        tell(seconds=time.perf_counter() - started, peak_gib=peak_memory_gib())
        number += 1
    compute.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
