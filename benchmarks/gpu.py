"""The embedded engine on one GPU, in at most eight minutes: sampling, training, memory, agreement.

    python benchmarks/gpu.py [--shapes 0.6b,4b] [--seconds 420] [--json]

Random weights of Qwen3's shapes, so nothing has to be fetched. Printed for each shape:

- sampling: tokens a second, and its share of what memory bandwidth allows (weights and cache read
  once a step; the bandwidth is measured by copying), in recorded steps (CUDA graphs), in steps that
  are launched kernel by kernel, and by the model's modules; what of it `decodes_by` names was left
  where the comparison with the model's own forward failed, and the reason stands on stderr;
- training, by the attention that packed sequences took (first that which the engine takes): tokens
  a second, and MFU: 6 × parameters × tokens, plus attention's 12 × layers × width × context, over
  the peak of a measured bfloat16 matrix product (Chowdhery et al. 2022, arXiv:2204.02311,
  appendix B);
- memory: the peak of a step beside what the planner predicts for it;
- agreement: the loss of one small batch in bfloat16 on the GPU beside float32 on the CPU.

`--device cpu --shapes tiny` runs the whole of it anywhere, to see that it works. It needs torch,
transformers and this package, and nothing else; a shape for which no time is left says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.graphs import recorder_on
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models import architecture
from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import tiny_model
from training_gym.planning.memory import Shape, estimate_memory
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.plan import Architecture, Machine
from training_gym.spec.recipe import LocalEngine, Recipe
from training_gym.spec.run import RunSpec
from training_gym.spec.sampling import Prompt, SampleKey, Sampling

GIB = 2.0**30


@dataclass(frozen=True)
class Size:
    """A Qwen3 by its dimensions, and how much to ask of it."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    requests: int
    prompt_tokens: int
    answer_tokens: int


SIZES = {
    "tiny": Size(64, 2, 4, 128, 512, 8, 16, 16),
    "0.6b": Size(1024, 28, 16, 3072, 151936, 128, 256, 256),
    "4b": Size(2560, 36, 32, 9728, 151936, 64, 256, 192),
}


def main() -> None:
    arguments = parse()
    ends = time.monotonic() + arguments.seconds
    device = torch.device(arguments.device)
    limits = {
        "bandwidth_gb_per_s": bandwidth(device) / 1e9,
        "matmul_tflop_per_s": matmul(device) / 1e12,
    }
    found: dict[str, Any] = {"device": name_of(device), "torch": torch.__version__, **limits}
    for name in arguments.shapes.split(","):
        if time.monotonic() > ends:
            found[name] = "left out: no time was left"
            continue
        found[name] = measure(SIZES[name], device, limits)
        if not arguments.json:
            print(name, json.dumps(found[name], indent=2), flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="0.6b,4b", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=420.0, help="no shape begins after that")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(size: Size, device: torch.device, limits: dict[str, float]) -> dict[str, Any]:
    """Everything about one shape."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(size)
        config.save_pretrained(folder)
        facts = architecture.read(Path(folder))
    recipe = Recipe(
        group_size=8,
        prompts_per_batch=size.requests // 8,
        max_response_tokens=size.answer_tokens,
        engine=LocalEngine(
            device="cuda" if device.type == "cuda" else "cpu",
            dtype="bfloat16" if device.type == "cuda" else "float32",
            deterministic=False,
        ),
    )
    budget = 8192 if device.type == "cuda" else 1024
    model = model_of(config, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    compute = Compute()
    best_step_s = bytes_a_step(facts, size, device) / (limits["bandwidth_gb_per_s"] * 1e9)
    try:
        sampling: dict[str, Any] = {}
        for name, network in ways_of_sampling(model, device):
            found, trajectories = asyncio.run(sample(network, size, compute))
            sampling[name] = found | {"share_of_bandwidth": best_step_s / found["seconds_a_step"]}
            network.retains = False
            network.release()
        network = network_of(model, device)  # computes as the engine's, whatever sampled last
        network.check_parity()
        network.release()
        training = {network.packing.name: train(network, recipe, trajectories, budget, device)}
        peak = torch.cuda.max_memory_allocated() / GIB if device.type == "cuda" else None
        if network.packing.by_kernel:
            network.packing.leave("to be compared")
            seconds = train(network, recipe, trajectories, budget, device)
            training[network.packing.name] = seconds
    finally:
        compute.close()
    for way in training.values():
        flops = way["tokens"] * flops_a_token(facts, size)
        way["mfu"] = flops / way["seconds"] / (limits["matmul_tflop_per_s"] * 1e12)
    predicted = predict(recipe, facts, size, budget, device)
    return {
        "parameters": facts.num_parameters,
        "sampling": sampling,
        "training": training,
        "memory_gib": {"peak": peak, "predicted": predicted},
        "agreement": agreement(config, recipe, trajectories, device),
    }


def config_of(size: Size) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=min(size.heads, 8),
        head_dim=128 if size.hidden >= 1024 else 16,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )


def model_of(config: Any, device: torch.device) -> Any:
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config).float()
    return model.eval()


def network_of(model: Any, device: torch.device, *, recorded: bool = False) -> Network:
    """As the engine computes on the device."""
    return Network(
        model,
        autocast=torch.bfloat16 if device.type == "cuda" else None,
        recorder=recorder_on(device, wanted=recorded),
    )


def ways_of_sampling(model: Any, device: torch.device) -> Iterator[tuple[str, Network]]:
    """The network with ever slower ways of decoding; the fastest one is compared first."""
    if device.type == "cuda":
        network = network_of(model, device, recorded=True)
        network.check_parity()
        network.retains = True  # as the engine does where memory allows
        yield "graphs", network
    network = network_of(model, device)
    network.check_parity()
    yield "kernel by kernel", network
    network.decode_slower("to be compared")
    yield "modules", network


async def sample(
    network: Network, size: Size, compute: Compute
) -> tuple[dict[str, Any], list[Trajectory]]:
    """Answers of equal length to groups of eight; the second of two rounds counts."""
    with tempfile.TemporaryDirectory() as folder:
        codec = load_codec(tiny_model(Path(folder) / "tiny"))  # any will do: stops are banned
    sampler = LocalSampler(
        network,
        codec,
        compute,
        slots=size.requests,
        max_sequence_tokens=size.prompt_tokens + size.answer_tokens + 1,
        prefill_tokens=8192,
        deterministic=False,
    )
    sampling = Sampling(min_tokens=size.answer_tokens, max_tokens=size.answer_tokens)
    seconds, answers = [], []
    for seed in range(2):
        await sampler.forget()
        prompts = [prompt(size, seed, number // 8) for number in range(size.requests)]
        started = time.perf_counter()
        answers = await asyncio.gather(
            *(
                sampler.generate(
                    Prompt(token_ids=tokens),
                    sampling,
                    SampleKey(seed=seed, task=str(number // 8), member=number % 8),
                )
                for number, tokens in enumerate(prompts)
            )
        )
        seconds.append(time.perf_counter() - started)
    await sampler.close()
    tokens = sum(len(answer.token_ids) for answer in answers)
    found = {
        "decodes_by": network.decoding.name,
        "tokens_per_second": tokens / seconds[1],
        "seconds_a_step": seconds[1] / size.answer_tokens,
        "seconds_of_first_round": seconds[0],
    }
    trajectories = [
        Trajectory(
            token_ids=(*tokens, *answer.token_ids),
            flags=(PROMPT,) * len(tokens) + (SAMPLED,) * len(answer.token_ids),
            logprobs=(0.0,) * len(tokens) + answer.logprobs,
            versions=(0,) * (len(tokens) + len(answer.token_ids)),
            prompt_length=len(tokens),
        )
        for tokens, answer in zip(prompts, answers, strict=True)
    ]
    return found, trajectories


def prompt(size: Size, seed: int, group: int) -> tuple[int, ...]:
    draw = random.Random(f"{seed}/{group}")
    return tuple(draw.randrange(32, 127) for _ in range(size.prompt_tokens))


def batch_of(trajectories: list[Trajectory]) -> TrainingBatch:
    return TrainingBatch(
        trajectories=tuple(trajectories),
        advantages=tuple(
            (1.0 - number % 4,) * len(each.token_ids) for number, each in enumerate(trajectories)
        ),
        weights=(1.0,) * len(trajectories),
    )


def train(
    network: Network,
    recipe: Recipe,
    trajectories: list[Trajectory],
    budget: int,
    device: torch.device,
) -> dict[str, float]:
    """Three updates; the median of the last two counts."""
    trainer = LocalTrainer(
        network, recipe, token_budget=budget, total_steps=10, save_weights=lambda _: None
    )
    seconds, tokens = [], 0.0
    for _ in range(3):
        started = time.perf_counter()
        metrics = trainer.step(batch_of(trajectories))
        synchronise(device)
        seconds.append(time.perf_counter() - started)
        tokens = metrics["train_tokens"]
    median = statistics.median(seconds[1:])
    return {"tokens": tokens, "seconds": median, "tokens_per_second": tokens / median}


def agreement(
    config: Any, recipe: Recipe, trajectories: list[Trajectory], device: torch.device
) -> dict[str, float]:
    """The loss and gradient norm of one small model on both devices, same weights and batch."""
    small = config_of(SIZES["tiny"])
    found: dict[str, float] = {}
    given: TrainingBatch | None = None
    for name, place in (("cpu", torch.device("cpu")), ("device", device)):
        network = network_of(model_of(small, torch.device("cpu")).to(place), place)
        network.check_parity()
        made = recipe.changed(engine=recipe.engine.changed(device=place.type))
        trainer = LocalTrainer(
            network, made, token_budget=2048, total_steps=10, save_weights=lambda _: None
        )
        given = given or batch_of([shortened(each, trainer) for each in trajectories[:8]])
        metrics = trainer.step(given)
        found |= {f"{name}_loss": metrics["loss"], f"{name}_grad_norm": metrics["grad_norm"]}
    return found


def shortened(trajectory: Trajectory, trainer: LocalTrainer) -> Trajectory:
    """The start of an answer, in a smaller vocabulary, a little off the policy that learns."""
    start, length = trajectory.prompt_length, trajectory.prompt_length + 12
    ids = tuple(token % SIZES["tiny"].vocabulary for token in trajectory.token_ids[:length])
    (scores,) = trainer.score([ids])
    return trajectory.changed(
        token_ids=ids,
        flags=trajectory.flags[:length],
        logprobs=(0.0,) * start + tuple(score + 0.1 for score in scores[start:]),
        versions=trajectory.versions[:length],
    )


def predict(
    recipe: Recipe, facts: Architecture, size: Size, budget: int, device: torch.device
) -> float:
    """What the planner would have planned for, in GiB, without the process itself."""
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    machine = Machine(
        cpu_cores=1,
        memory_gib=16,
        accelerators=int(device.type == "cuda"),
        accelerator_memory_gib=total / GIB,
    )
    run = RunSpec(model="random", dataset="none.jsonl", reward="none:reward", recipe=recipe)
    shape = Shape(
        slots=size.requests,
        token_budget=budget,
        sequence_tokens=size.prompt_tokens + size.answer_tokens,
    )
    memory = estimate_memory(run, facts, machine, shape)
    return memory.total_gib - memory.process_gib


def bytes_a_step(facts: Architecture, size: Size, device: torch.device) -> float:
    """What one decoding step has to read: every weight, and every row's keys and values."""
    width = 2 if device.type == "cuda" else 4
    context = size.prompt_tokens + size.answer_tokens / 2
    cached = 2 * facts.num_layers * facts.num_kv_heads * facts.head_dim
    return width * (facts.num_parameters + size.requests * context * cached)


def flops_a_token(facts: Architecture, size: Size) -> float:
    context = (size.prompt_tokens + size.answer_tokens) / 2
    attention = 12 * facts.num_layers * facts.num_heads * facts.head_dim * context
    return 6 * facts.num_parameters + attention


def bandwidth(device: torch.device) -> float:
    """Bytes a second that a copy reads and writes."""
    count = 2**28 if device.type == "cuda" else 2**24
    source = torch.ones(count, device=device)
    target = torch.empty_like(source)
    return 2 * 4 * count / timed(lambda: target.copy_(source), device)


def matmul(device: torch.device) -> float:
    """Floating-point operations a second of a large product, in bfloat16 on a GPU."""
    on_gpu = device.type == "cuda"
    edge, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    left = torch.randn(edge, edge, device=device, dtype=dtype)
    return 2 * edge**3 / timed(lambda: left @ left, device)


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Median seconds of ten calls."""
    seconds = []
    for _ in range(12):
        synchronise(device)
        started = time.perf_counter()
        work()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[2:])


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


if __name__ == "__main__":
    main()
