"""Sampling by a real vLLM in the trainer's process; needs an environment that has it.

make test-vllm
"""

import asyncio
import math
import os
import subprocess
import sys

import pytest

pytest.importorskip("vllm")

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.engines.local.vllm.sampler import VllmSampler
from training_gym.engines.local.vllm.start import start_vllm
from training_gym.engines.local.vllm.weights import plain_weights
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import Lora, Vllm
from training_gym.spec.sampling import Prompt, SampleKey, Sampling, WeightUpdate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # vLLM's own
]

LENGTH = 400
PROMPT = tuple(range(5, 25))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden_size=128)  # heads of 32


@pytest.fixture(scope="module")
def compute():
    made = Compute()
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine(folder, compute):
    """One engine for all tests: vLLM cannot be started twice in a process."""

    async def start():
        return await compute.run(
            lambda: start_vllm(
                folder,
                Vllm(cpu_cache_gib=1, eager=True),
                device="cpu",
                dtype="float32",
                slots=8,
                max_sequence_tokens=LENGTH,
            )
        )

    return asyncio.run(start())


def sampler_of(engine, folder, compute, adapter=None):
    network = Network(load_model(folder, dtype="float32", device="cpu", adapter=adapter))
    return VllmSampler(engine, network, load_codec(folder), compute, max_sequence_tokens=LENGTH)


def ask(sampler, sampling, **key):
    return sampler.generate(Prompt(token_ids=PROMPT), sampling, SampleKey(seed=1, task="t", **key))


async def synchronised(sampler, version):
    update = WeightUpdate(version=version, base_version=version - 1)
    await sampler.update_weights(update)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_our_own_forward(engine, folder, compute, temperature):
    sampler = sampler_of(engine, folder, compute)
    sampling = Sampling(max_tokens=24, min_tokens=24, temperature=temperature)

    async def go():
        await synchronised(sampler, 1)
        return await asyncio.gather(*(ask(sampler, sampling, member=n) for n in range(6)))

    completions = asyncio.run(go())
    assert len({completion.token_ids for completion in completions}) == 6
    for completion in completions:
        assert len(completion.token_ids) == 24
        assert set(completion.versions) == {1}
        expected = tempered_logprobs(sampler, completion.token_ids, temperature)
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)


def reference(model):
    """The same weights in a model of transformers' own, which computes in its own way."""
    import copy

    import transformers

    config = copy.deepcopy(model.config)
    config._attn_implementation = "eager"
    plain = transformers.AutoModelForCausalLM.from_config(config).eval()
    plain.load_state_dict(dict(plain_weights(model)))
    return plain


def change(model):
    import torch

    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                generator = torch.Generator().manual_seed(number)
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


def tempered_logprobs(sampler, ids, temperature):
    import torch

    full = torch.tensor([[*PROMPT, *ids]])
    with torch.no_grad():
        logits = reference(sampler._network.model)(full).logits[0, len(PROMPT) - 1 : -1].float()
    banned = sorted(sampler._codec.stop_ids)
    logits[:, banned] = -math.inf  # every answer had to reach its length
    scores = torch.log_softmax(logits / temperature, dim=-1)
    return [float(scores[i, token]) for i, token in enumerate(ids)]


@pytest.mark.parametrize("adapter", [None, Lora(rank=2)])
def test_an_update_is_sampled_from_at_once(engine, folder, compute, adapter):
    sampler = sampler_of(engine, folder, compute, adapter)
    change(sampler._network.model)

    async def go():
        await synchronised(sampler, 7)
        return await ask(sampler, Sampling(max_tokens=12, min_tokens=12))

    completion = asyncio.run(go())
    expected = tempered_logprobs(sampler, completion.token_ids, 1.0)
    assert completion.logprobs == pytest.approx(expected, abs=1e-3)


def test_the_same_key_draws_the_same(engine, folder, compute):
    sampler = sampler_of(engine, folder, compute)
    sampling = Sampling(max_tokens=16)

    async def go():
        return [await ask(sampler, sampling, member=3) for _ in range(2)]

    first, second = asyncio.run(go())
    assert first.token_ids == second.token_ids


def test_a_cancelled_request_leaves_room(engine, folder, compute):
    sampler = sampler_of(engine, folder, compute)

    async def go():
        task = asyncio.create_task(ask(sampler, Sampling(max_tokens=70, min_tokens=70)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await ask(sampler, Sampling(max_tokens=3))

    assert len(asyncio.run(go()).token_ids) <= 3
    assert not engine.has_unfinished_requests()


def test_the_context_ends_an_answer(engine, folder, compute):
    sampler = sampler_of(engine, folder, compute)
    room = LENGTH - len(PROMPT)

    async def go():
        return await ask(sampler, Sampling(max_tokens=500, min_tokens=500))

    completion = asyncio.run(go())
    assert (len(completion.token_ids), completion.stop_reason) == (room, "context")


def test_weights_change_under_an_answer(engine, folder, compute):
    """Tokens behind the change are the new weights' own, also where the prompt was cached."""
    sampler = sampler_of(engine, folder, compute)
    long = Sampling(max_tokens=40, min_tokens=40)

    async def go():
        await synchronised(sampler, 1)
        answer = asyncio.create_task(ask(sampler, long))
        while sampler.statistics.steps < 10:
            await asyncio.sleep(0)
        change(sampler._network.model)
        await compute.run(sampler.take_up, 2)
        return await answer

    completion = asyncio.run(go())
    drawn = completion.versions.count(1)
    assert 9 <= drawn < 40
    assert completion.versions == (1,) * drawn + (2,) * (40 - drawn)
    expected = tempered_logprobs(sampler, completion.token_ids, 1.0)
    assert completion.logprobs[drawn:] == pytest.approx(expected[drawn:], abs=1e-3)
    assert completion.logprobs[:drawn] != pytest.approx(expected[:drawn], abs=1e-2)


def test_a_prompt_is_computed_once_for_its_group(engine, folder, compute):
    sampler = sampler_of(engine, folder, compute)
    long = Prompt(token_ids=PROMPT * 15)  # vLLM keeps whole blocks, of 128 tokens on a CPU
    key, two = SampleKey(seed=1, task="t"), Sampling(max_tokens=2, min_tokens=2)

    async def go():
        await synchronised(sampler, 1)
        return [await sampler.generate(long, two, key.changed(member=n)) for n in range(2)]

    first, second = asyncio.run(go())
    assert first.prefilled == 300
    assert second.prefilled < 200
    assert sampler.statistics.prefilled_tokens == first.prefilled + second.prefilled


def test_several_adapters_are_refused(engine, folder, compute):
    sampler = sampler_of(engine, folder, compute)
    with pytest.raises(EngineError, match="'other' is not"):
        asyncio.run(
            sampler.generate(
                Prompt(token_ids=PROMPT),
                Sampling(max_tokens=2),
                SampleKey(seed=1, task="t"),
                adapter="other",
            )
        )


def test_an_error_frees_the_engine(engine, folder, compute, monkeypatch):
    sampler = sampler_of(engine, folder, compute)

    def failing():
        raise RuntimeError("the kernel failed")

    async def go():
        with monkeypatch.context() as broken:
            broken.setattr(engine, "step", failing)
            with pytest.raises(RuntimeError, match="the kernel failed"):
                await ask(sampler, Sampling(max_tokens=4))
        return await ask(sampler, Sampling(max_tokens=4, min_tokens=4))

    assert len(asyncio.run(go()).token_ids) == 4


DEFINITION = """
from training_gym import LocalEngine, Lora, Recipe, TrainConfig, Vllm


def varied(episode):
    return len(set(episode.completion)) / 20


config = TrainConfig(
    model={model!r},
    dataset=[{{"prompt": f"say {{n}}"}} for n in range(8)],
    reward=varied,
    recipe=Recipe(
        num_steps=3,
        prompts_per_batch=2,
        group_size=4,
        max_response_tokens=12,
        max_staleness={staleness},
        adapter={adapter},
        engine=LocalEngine(device="cpu", deterministic=False, sampler=Vllm(eager=True)),
    ),
)
"""


@pytest.mark.parametrize(
    ("staleness", "adapter"), [(0, None), (0, "Lora(rank=2)"), (2, None)], ids=str
)
def test_a_run_trains_on_what_vllm_drew(tmp_path, folder, staleness, adapter):
    """A job of its own: every step's log-probabilities agree with the trainer's."""
    file = tmp_path / "vllm_run.py"
    text = DEFINITION.format(model=str(folder), staleness=staleness, adapter=adapter)
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "training_gym.cli", "train", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRAINING_GYM_HOME": str(tmp_path)},
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = (path.parent for path in (tmp_path / "runs").glob("*/streams"))
    metrics = read_stream(RunDirectory(run), "metrics")
    assert len(metrics) == 3
    name = "sampler_mismatch_mean" if staleness else "mismatch_mean"
    for record in metrics:
        assert record["values"].get(name, 0.0) < 1e-4
    assert any(name in record["values"] for record in metrics)
