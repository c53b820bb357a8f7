"""Every family against the model's own forward, alone and one sequence at a time."""

import asyncio
import copy
import random

import pytest
import torch
from tests.unit.engines.families import FAMILIES, own_logprobs, sharp_model
from transformers import AutoConfig, AutoModelForCausalLM

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.draws import Draw, draw, stream_of, uniform
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.architecture import read
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.algorithms import SFT
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.errors import ModelError
from training_gym.spec.recipe import Lora, Recipe
from training_gym.spec.sampling import Prompt, SampleKey, Sampling

CONTEXT = 160


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("families") / request.param, request.param)


@pytest.fixture(scope="module")
def model(folder):
    return sharp_model(folder)


@pytest.fixture
def network(model):
    return Network(model)


def tokens(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(32, 127, (count,), generator=generator).tolist())


def test_a_prompt_that_answers_share_is_each_answers_own_prompt(network, model):
    """70 tokens, beyond the sliding windows of 32 and one chunk of 64, in three generations."""
    root, prompt, one, other = (tokens(n, n) for n in (44, 26, 20, 50))
    layout = PackedLayout(
        (
            Segment(0, 44),
            Segment(44, 26, (0,), 44),
            Segment(70, 20, (0, 44), 70),
            Segment(90, 50, (0, 44), 70),
            Segment(140, 1, (0,), 44),
            Segment(141, 10),
        )
    )
    ids = torch.tensor(root + prompt + one + other + one[:1] + other[:10])
    spans = (range(70), range(70, 90), range(70, 120), range(44, 45), range(10))
    positions = torch.tensor([position for span in spans for position in span])
    with torch.no_grad():
        found = network.logits(network.hidden(ids, positions, layout)).log_softmax(-1)
    expected = (
        own_logprobs(model, root + prompt + one),
        own_logprobs(model, root + prompt + other)[70:],
        own_logprobs(model, root + one[:1])[44:],
        own_logprobs(model, other[:10]),
    )
    assert (found - torch.cat(expected)).abs().max() < 1e-5


def ask(sampler, prompt, sampling, session=None, **key):
    key = SampleKey(**{"seed": 1, "task": "t", **key})
    return sampler.generate(Prompt(token_ids=tuple(prompt)), sampling, key, session=session)


class Play:
    """Episodes of one to three turns over few rows, joining whenever; each request is kept."""

    def __init__(self, sampler, seed):
        self.sampler = sampler
        self.random = random.Random(seed)
        self.roots = [tokens(n, seed) for n in (3, 40, 70)]
        self.asked = []

    async def run(self, episodes):
        await asyncio.gather(*(self.episode(number) for number in range(episodes)))

    async def episode(self, number):
        choose = self.random
        prompt = choose.choice(self.roots) + tokens(choose.choice((0, 0, 1, 12)), number)
        sampling = Sampling(
            max_tokens=choose.choice((1, 4, 9)),
            temperature=choose.choice((0, 0.7, 1.0)),
            stop=choose.choice(((), ("e",), ("th", "x"))),
        )
        delay, turns = choose.choice((0, 0, 0.01, 0.05)), choose.choice((1, 2, 3))
        await asyncio.sleep(delay)
        for turn in range(turns):
            key = {"task": str(number // 2), "turn": turn}  # every second one repeats the first's
            answer = await ask(self.sampler, prompt, sampling, f"s{number}", **key)
            self.asked.append((prompt, sampling, SampleKey(seed=1, **key), answer))
            prompt = prompt + answer.token_ids + tokens(turn + 1, turn)


def test_every_request_is_answered_as_if_it_were_alone(network, model, folder, compute):
    """Mixed lengths, earlier turns, warm rows, stop texts, repetitions, late comers.

    Alone means: each token drawn from the model's own forward over what came before it.
    """
    check_requests(network, model, folder, compute, episodes=6)


def check_requests(network, model, folder, compute, episodes):
    codec, sizes = load_codec(folder), read(folder)

    async def together():
        sampler = LocalSampler(
            network, codec, compute, slots=3, max_sequence_tokens=CONTEXT, deterministic=False
        )
        play = Play(sampler, seed=len(folder.name))
        await play.run(episodes)
        if network.packs:
            cache = sampler._rows.table.cache
            values = cache.capacity * sizes.cached_values + sizes.state_values
            assert cache.num_bytes == 4 * 3 * values  # as the planner reckons
        return play.asked

    asked = asyncio.run(together())
    assert any(answer.prefilled < len(prompt) for prompt, _, _, answer in asked)
    for prompt, sampling, key, answer in asked:
        scores = own_logprobs(model, prompt + answer.token_ids[:-1])[len(prompt) - 1 :]
        best = scores.topk(2).values
        draws = [Draw(sampling, uniform(stream_of(key), n)) for n in range(len(scores))]
        ids, logprobs = draw(scores, draws)
        clear = len(ids)
        if sampling.temperature == 0:  # up to where two tokens are nearly equal
            clear = next((n for n, (a, b) in enumerate(best) if a - b < 1e-4), clear)
        assert list(answer.token_ids[:clear]) == ids[:clear]
        assert answer.logprobs[:clear] == pytest.approx(logprobs[:clear], abs=1e-5)
        ended = ends_by_text(codec, answer.token_ids, sampling)
        assert not ends_by_text(codec, answer.token_ids[:-1], sampling)
        full = len(answer.token_ids) == sampling.max_tokens
        assert answer.stop_reason == ("stop" if ended else "length")
        assert ended or full


def ends_by_text(codec, ids, sampling):
    return bool(set(ids) & codec.stop_ids) or any(t in codec.decode(ids) for t in sampling.stop)


def batch(groups):
    """Answers to imitate: root, prompt and answers of each group share what they begin with."""
    trajectories = []
    for number, (prompt_length, *answers) in enumerate(groups):
        prompt = tokens(16) + tokens(prompt_length, number)
        for place, length in enumerate(answers):
            ids = prompt + tokens(length, 100 + 10 * number + place)
            trajectories.append(
                Trajectory(
                    token_ids=ids,
                    flags=(PROMPT,) * len(prompt) + (SAMPLED,) * length,
                    logprobs=(0.0,) * len(ids),
                    versions=(0,) * len(ids),
                    prompt_length=len(prompt),
                )
            )
    return TrainingBatch(
        trajectories=tuple(trajectories),
        advantages=tuple((1.0,) * len(t.token_ids) for t in trajectories),
        weights=(1.0,) * len(trajectories),
    )


def plain_gradients(model, given):
    """Of the mean loss per token, by the model's own forward, one sequence at a time, float64."""
    plain = copy.deepcopy(model).double()
    plain.set_attn_implementation("eager")
    plain.set_experts_implementation("eager")  # the grouped product knows no float64
    num_tokens = sum(trajectory.num_sampled for trajectory in given.trajectories)
    for trajectory in given.trajectories:
        ids = torch.tensor([trajectory.token_ids])
        logprobs = plain(input_ids=ids, use_cache=False).logits[0, :-1].log_softmax(-1)
        answered = logprobs.gather(1, ids[0, 1:, None])[trajectory.prompt_length - 1 :]
        (-answered.sum() / num_tokens).backward()
    return {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}


def test_gradients_of_a_packed_step_are_those_of_single_sequences(network, model, monkeypatch):
    given = batch(((30, 9, 5, 20), (7, 3, 1), (40, 30)))
    trainer = LocalTrainer(
        network,
        Recipe(algorithm=SFT(), max_response_tokens=40),
        token_budget=4096,
        total_steps=1,
        save_weights=lambda folder: None,
    )
    monkeypatch.setattr(trainer.optimizer, "update", dict)
    metrics = trainer.step(given)
    assert metrics["train_tokens"] == 16 + 30 + 9 + 5 + 20 + 7 + 3 + 1 + 40 + 30
    expected = plain_gradients(model, given)
    found = {name: p.grad for name, p in network.trainable() if p.grad is not None}
    network.model.zero_grad()
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        error = (found[name].double() - gradient).norm()
        assert error <= 1e-4 * gradient.norm() + 1e-6, name


def test_bfloat16_with_an_adapter_stays_near_float32(folder):
    model = load_model(folder, dtype="float32", device="cpu", adapter=Lora(rank=4)).eval()
    assert Network(model).check_parity() < 1e-5
    assert 0 < Network(model, autocast=torch.bfloat16).check_parity() < 0.05


def without_layouts(folder):
    """Linear attention that runs over a packed row as over one text."""
    model = sharp_model(folder)
    network = Network(model)
    for module in model.modules():
        vars(module).pop("forward", None)
    return network


def convolved(folder):
    """A family with short convolutions between its layers of attention."""
    config = AutoConfig.for_model(
        "lfm2",
        **{"vocab_size": 259, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0},
        layer_types=["conv", "full_attention", "conv"],
    )
    torch.manual_seed(0)
    return Network(AutoModelForCausalLM.from_config(config).eval())


@pytest.mark.parametrize("make", [without_layouts, convolved])
def test_what_cannot_be_packed_is_computed_whole(make, tmp_path, compute, capfd, monkeypatch):
    """Correct, and said: gradients, sampling and scores as of any other model."""
    folder = tiny_model(tmp_path, "qwen3_5_text")
    network = make(folder)
    assert network.check_parity() < 1e-5
    assert not network.packs
    assert "run without packing, shared prompts and a cache" in capfd.readouterr().err
    model = network.model
    test_gradients_of_a_packed_step_are_those_of_single_sequences(network, model, monkeypatch)
    check_requests(network, model, folder, compute, episodes=3)


def test_what_is_computed_wrongly_either_way_is_refused(tmp_path):
    network = Network(sharp_model(tiny_model(tmp_path)))
    network._head, network._projection = copy.deepcopy(network._head), None
    with torch.no_grad():
        network._head.weight.mul_(1.5)
    with pytest.raises(ModelError, match=r"cannot run models of type 'llama'.*differ by"):
        network.check_parity()
