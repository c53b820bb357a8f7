"""Several adapters over one base: sampled in one batch, trained side by side, saved and loaded."""

import asyncio

import pytest
import torch
from tests.unit.engines.families import own_logprobs, sharp_model
from tests.unit.engines.test_families import batch, tokens

from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.weights import add_adapter, load_adapter, load_codec, save_adapter
from training_gym.models.weights.adapters import adapter_names
from training_gym.models.weights.quiet import quiet
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.algorithms import SFT
from training_gym.spec.errors import EngineError, ModelError
from training_gym.spec.recipe import AdamW, Lora, Recipe
from training_gym.spec.sampling import Prompt, SampleKey, Sampling, WeightUpdate

FAMILIES = ("llama", "qwen3_moe", "qwen3_5_text")
WIDE, NARROW = Lora(rank=4), Lora(rank=2, alpha=8, target_modules=("o_proj",))


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("adapted") / request.param, request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("adapted") / "llama")


def adapted(folder, *, noise=0.1):
    """Two adapters with values of their own over sharp weights."""
    model = add_adapter(sharp_model(folder), WIDE, name="red", seed=1)
    model = add_adapter(model, NARROW, name="blue", seed=2)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def make_sampler(network, folder, compute, slots=4):
    codec = load_codec(folder)
    return LocalSampler(network, codec, compute, slots=slots, max_sequence_tokens=120)


async def ask(sampler, prompt, adapter, task="t"):
    sampling = Sampling(max_tokens=6, min_tokens=6)
    key = SampleKey(seed=1, task=task)
    return await sampler.generate(Prompt(token_ids=prompt), sampling, key, adapter=adapter)


def drawn(scores, chosen, banned):
    """Log-probabilities of what was chosen where some tokens could not be."""
    scores[:, list(banned)] = float("-inf")
    return scores.log_softmax(-1).gather(1, torch.tensor(chosen)[:, None]).squeeze(1)


def test_requests_for_different_adapters_share_a_batch(folder, compute):
    model = adapted(folder)
    network = Network(model)
    prompts = [tokens(30), tokens(30), tokens(12, 1)]
    asked = [(p, a) for p in prompts for a in ("red", "blue", "base", None)]

    async def together():
        sampler = make_sampler(network, folder, compute)
        return await asyncio.gather(*(ask(sampler, p, a, task=f"{a}") for p, a in asked))

    answers = asyncio.run(together())
    banned = load_codec(folder).stop_ids
    for (prompt, adapter), answer in zip(asked, answers, strict=True):
        ids = prompt + answer.token_ids[:-1]
        if adapter == "base":
            with model.disable_adapter():
                scores = own_logprobs(model, ids)
        else:
            model.set_adapter(adapter or "red")
            scores = own_logprobs(model, ids)
        expected = drawn(scores[len(prompt) - 1 :], answer.token_ids, banned)
        assert answer.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
    assert len({answers[n].logprobs for n in range(3)}) == 3


def sft_trainer(network, rate=1e-2):
    recipe = Recipe(
        algorithm=SFT(), max_response_tokens=40, optimizer=AdamW(learning_rate=rate, epsilon=1e-3)
    )
    return LocalTrainer(
        network, recipe, token_budget=4096, total_steps=9, save_weights=lambda folder: None
    )


def state_of(model, name):
    return {
        path: parameter.detach().clone()
        for path, parameter in model.named_parameters()
        if f".{name}." in path
    }


def test_adapters_trained_side_by_side_are_those_trained_alone(folder):
    together = adapted(folder)
    network = Network(together)
    base = {n: p.detach().clone() for n, p in together.named_parameters() if "lora_" not in n}
    trainers = {name: sft_trainer(network.view(name)) for name in ("red", "blue")}
    batches = [batch(((9, 5, 8), (4, 7))), batch(((12, 3, 6),))]
    for given in batches:
        for trainer in trainers.values():
            trainer.step(given)
    for name in trainers:
        model = adapted(folder)
        alone = sft_trainer(Network(model).view(name))
        before = state_of(model, name)
        for given in batches:
            alone.step(given)
        found, expected = state_of(together, name), state_of(model, name)
        for path, value in expected.items():
            assert torch.allclose(found[path], value, atol=1e-5), path
        assert any(not torch.equal(expected[path], before[path]) for path in before)
    now = {n: p for n, p in together.named_parameters() if "lora_" not in n}
    assert all(torch.equal(now[name], value) for name, value in base.items())


def test_an_update_of_one_adapter_leaves_the_others_warm(llama, compute):
    model = adapted(llama)
    network = Network(model)
    trainer = sft_trainer(network.view("red"))

    async def play():
        sampler = make_sampler(network, llama, compute)
        first = {name: await ask(sampler, tokens(30), name) for name in ("red", "blue")}
        await compute.run(trainer.step, batch(((9, 5, 8),)))
        await sampler.update_weights(WeightUpdate(version=1, base_version=0, adapter="red"))
        return first, {name: await ask(sampler, tokens(30), name) for name in ("red", "blue")}

    first, second = asyncio.run(play())
    assert (second["red"].prefilled, second["blue"].prefilled) == (30, 1)
    assert (set(second["red"].versions), set(second["blue"].versions)) == ({1}, {0})
    assert second["red"].logprobs != first["red"].logprobs
    assert second["blue"].logprobs == pytest.approx(first["blue"].logprobs, abs=1e-5)


def test_a_sampler_takes_an_adapter_from_a_folder(llama, compute, tmp_path):
    trained, serving = adapted(llama), adapted(llama, noise=0.05)
    for name in adapter_names(trained):
        save_adapter(trained, llama, tmp_path / name, name=name)
    network = Network(serving)
    before = dict(serving.named_parameters())

    async def play():
        sampler = make_sampler(network, llama, compute)
        for adapter, source in (("red", "red"), ("green", "blue")):
            await sampler.update_weights(
                WeightUpdate(
                    version=2, base_version=0, adapter=adapter, source=str(tmp_path / source)
                )
            )
        with pytest.raises(ModelError, match="not of the size of 'red'"):
            await sampler.update_weights(
                WeightUpdate(
                    version=3, base_version=2, adapter="red", source=str(tmp_path / "blue")
                )
            )
        with pytest.raises(EngineError, match="whole weights cannot be taken"):
            await sampler.update_weights(WeightUpdate(version=3, base_version=2, source="x"))
        return [await ask(sampler, tokens(9), name) for name in ("red", "green")]

    red, green = asyncio.run(play())
    assert adapter_names(serving) == ("red", "blue", "green")
    assert set(red.versions) == set(green.versions) == {2}
    other = make_sampler(Network(trained), llama, compute)
    for answer, name in ((red, "red"), (green, "blue")):
        expected = asyncio.run(ask(other, tokens(9), name))
        assert answer.token_ids == expected.token_ids
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    kept = dict(serving.named_parameters())
    assert all(kept[name] is parameter for name, parameter in before.items())


def test_adapters_that_are_not_there_are_named(llama, compute):
    network = Network(adapted(llama))
    with pytest.raises(EngineError, match="no adapter called 'rde'") as caught:
        asyncio.run(ask(make_sampler(network, llama, compute), tokens(5), "rde"))
    assert "red" in caught.value.fix
    with pytest.raises(EngineError, match="no adapter called 'x'"):
        network.view("x")
    with pytest.raises(ModelError, match="called 'red' already"):
        add_adapter(network.model, WIDE, name="red")
    with pytest.raises(ModelError, match=r"cannot be called 'a\.b'"):
        add_adapter(network.model, WIDE, name="a.b")
    with pytest.raises(ModelError, match="no adapter called 'x'"):
        save_adapter(network.model, llama, llama, name="x")


def test_one_adapters_view_is_checked_like_a_model(folder):
    network = Network(adapted(folder))
    assert network.view("blue").check_parity() < 1e-5
    assert network.check_parity() < 1e-5


def test_adapters_of_another_kind_run_alone_only(llama):
    from peft import LoraConfig, get_peft_model

    with quiet():
        odd = get_peft_model(
            sharp_model(llama), LoraConfig(r=2, use_dora=True, target_modules=["q_proj"])
        )
    assert Network(odd).check_parity() < 1e-5
    odd.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(ModelError, match="runs alone only"):
        Network(odd).view("other")


def test_an_adapter_joins_a_model_without_any(llama, tmp_path):
    trained = adapted(llama)
    save_adapter(trained, llama, tmp_path, name="blue")
    written = (tmp_path / "adapter_model.safetensors").read_bytes()
    for _ in range(5):  # equal adapters are equal files, whatever order a hash table has
        save_adapter(trained, llama, tmp_path, name="blue")
        assert (tmp_path / "adapter_model.safetensors").read_bytes() == written
    model = load_adapter(sharp_model(llama), tmp_path, name="sky")
    trained.set_adapter("blue")
    ids = tokens(20)
    assert torch.equal(own_logprobs(model.eval(), ids), own_logprobs(trained, ids))
