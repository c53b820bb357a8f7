"""Every family the catalogue knows, against the model's own forward."""

import asyncio

import pytest
import torch

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.recipe import Lora
from training_gym.spec.sampling import Prompt, SampleKey, Sampling

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "smollm3", "gemma3_text")
LENGTH = 60  # beyond the tiny Gemma's sliding window of 32


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("families") / request.param, request.param)


def own_logprobs(network, ids):
    """By the model's own eager forward."""
    model = network._causal_lm
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
    model.set_attn_implementation("training_gym")
    return logits.float().log_softmax(-1)


def test_packed_and_cached_passes_equal_the_models_own(folder, compute):
    network = Network(load_model(folder, dtype="float32", device="cpu").eval())
    torch.manual_seed(0)
    ids = torch.randint(32, 127, (LENGTH,))
    expected = own_logprobs(network, ids)
    layout = PackedLayout((Segment(0, 40), Segment(40, 20, prefix=(0,), prefix_length=40)))
    with torch.no_grad():
        packed = network.logits(network.hidden(ids, torch.arange(LENGTH), layout))
    assert (packed.log_softmax(-1) - expected).abs().max() < 1e-5

    async def sample():
        sampler = LocalSampler(
            network, load_codec(folder), compute, slots=3, max_sequence_tokens=120
        )
        sampling = Sampling(max_tokens=12, min_tokens=12)
        prompts = [tuple(ids[:n].tolist()) for n in (45, 45, 20)]
        answers = await asyncio.gather(
            *(
                sampler.generate(
                    Prompt(token_ids=p), sampling, SampleKey(seed=0, task="t", member=m)
                )
                for m, p in enumerate(prompts)
            )
        )
        return list(zip(prompts, answers, strict=True))

    for prompt, answer in asyncio.run(sample()):
        whole = torch.tensor(prompt + answer.token_ids)
        scores = own_logprobs(network, whole)[len(prompt) - 1 : -1]
        # Stop tokens were forbidden, so what was drawn from is the rest of the distribution.
        stop = list(load_codec(folder).stop_ids)
        rest = torch.log1p(-scores[:, stop].exp().sum(-1))
        chosen = scores.gather(1, whole[len(prompt) :, None]).squeeze(1) - rest
        assert torch.allclose(torch.tensor(answer.logprobs), chosen, atol=1e-5)


@pytest.mark.parametrize("adapter", [None, Lora(rank=4)])
def test_bfloat16_stays_near_float32(folder, adapter):
    model = load_model(folder, dtype="float32", device="cpu", adapter=adapter).eval()
    assert Network(model).check_parity() < 1e-5
    assert 0 < Network(model, autocast=torch.bfloat16).check_parity() < 0.05
