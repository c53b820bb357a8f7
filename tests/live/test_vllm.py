"""Sampling by a real vLLM in the trainer's process; needs an environment that has it.

make test-vllm
"""

import asyncio
import math

import pytest

pytest.importorskip("vllm")

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.engines.local.vllm_sampler import VllmSampler, plain_weights, start_vllm
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import Lora, Vllm
from training_gym.spec.sampling import Prompt, SampleKey, Sampling, WeightUpdate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # vLLM's own
]

LENGTH = 96
PROMPT = tuple(range(5, 25))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny")


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


def tempered_logprobs(sampler, ids, temperature):
    import torch

    full = torch.tensor([[*PROMPT, *ids]])
    with torch.no_grad():
        logits = sampler._network.model(full).logits[0, len(PROMPT) - 1 : -1].float()
    banned = sorted(sampler._codec.stop_ids)
    logits[:, banned] = -math.inf  # every answer had to reach its length
    scores = torch.log_softmax(logits / temperature, dim=-1)
    return [float(scores[i, token]) for i, token in enumerate(ids)]


@pytest.mark.parametrize("adapter", [None, Lora(rank=2)])
def test_an_update_is_sampled_from_at_once(engine, folder, compute, adapter):
    import torch

    sampler = sampler_of(engine, folder, compute, adapter)
    with torch.no_grad():
        for number, parameter in enumerate(sampler._network.model.parameters()):
            if parameter.requires_grad:
                generator = torch.Generator().manual_seed(number)
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)

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


def test_without_vllm_it_is_said(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm.engine.arg_utils", None)
    with pytest.raises(EngineError, match="cannot be imported"):
        start_vllm(folder, Vllm(), device="cpu", dtype="float32", slots=1, max_sequence_tokens=8)


def test_an_adapter_is_merged_under_the_base_models_names(folder):
    base = load_model(folder, dtype="float32", device="cpu")
    adapted = load_model(folder, dtype="float32", device="cpu", adapter=Lora(rank=2))
    plain = dict(plain_weights(adapted))
    assert set(plain) == set(base.state_dict())
