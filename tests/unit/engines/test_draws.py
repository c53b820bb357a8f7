import math

import pytest
import torch

from training_gym.engines.local.draws import Draw, draw, stream_of, truncated, uniform
from training_gym.spec.sampling import SampleKey, Sampling


def draws(number, count, **sampling):
    return [Draw(Sampling(**sampling), (i + 0.5) / count) for i in range(number)]


def test_uniforms_are_uniform_and_depend_on_every_part_of_the_key():
    base = {"seed": 1, "task": "t", "member": 2, "turn": 3, "visit": 4, "stream": "train"}
    other = {"seed": 2, "task": "u", "member": 0, "turn": 0, "visit": 0, "stream": "eval"}
    streams = {stream_of(SampleKey(**{**base, name: other[name]})) for name in base}
    assert len(streams | {stream_of(SampleKey(**base))}) == 7
    numbers = [uniform(stream_of(SampleKey(**base)), position) for position in range(20_000)]
    assert all(0 <= number < 1 for number in numbers)
    assert sum(numbers) / len(numbers) == pytest.approx(0.5, abs=0.01)
    bins = torch.histc(torch.tensor(numbers), bins=10, min=0, max=1)
    chi_square = ((bins - 2000) ** 2 / 2000).sum()
    assert chi_square < 27.9  # 99.9 % quantile at 9 degrees of freedom


def test_inversion_draws_in_proportion():
    # Evenly spread uniforms over a vocabulary wider than one block hit each token in proportion.
    torch.manual_seed(0)
    logits = torch.randn(1, 1500) * 3
    count = 20_000
    tokens, logprobs = draw(logits.repeat(count, 1), draws(count, count))
    expected = logits[0].double().softmax(0)
    found = torch.bincount(torch.tensor(tokens), minlength=1500) / count
    assert (found - expected).abs().max() < 2 / count
    wanted = logits[0].double().log_softmax(0)[tokens]
    assert torch.allclose(torch.tensor(logprobs).double(), wanted, atol=1e-5)


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.full((3, 700), float("-inf"))
    logits[:, 3] = 0.0
    wishes = [Draw(Sampling(), number) for number in (0.0, 0.5, math.nextafter(1.0, 0.0))]
    assert draw(logits, wishes) == ([3, 3, 3], [0.0, 0.0, 0.0])


def test_greedy_takes_the_best_and_reports_the_plain_logprob():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    tokens, logprobs = draw(logits.clone(), [Draw(Sampling(temperature=0), 0.99)])
    assert tokens == [1]
    assert logprobs[0] == pytest.approx(logits[0].log_softmax(0)[1].item())


def test_logprob_is_of_the_distribution_drawn_from():
    logits = torch.tensor([[1.0, 0.0, -1.0, -2.0]])
    tokens, logprobs = draw(logits.clone(), [Draw(Sampling(temperature=0.5, top_k=2), 0.0)])
    assert tokens == [0]
    assert logprobs[0] == pytest.approx(-math.log(1 + math.exp(-2.0)), abs=1e-6)


def test_banned_tokens_cannot_be_drawn():
    logits = torch.tensor([[5.0, 0.0]])
    tokens, logprobs = draw(logits, [Draw(Sampling(), 0.2, banned=(0,))])
    assert (tokens, logprobs) == ([1], [0.0])


def test_truncation_against_brute_force():
    torch.manual_seed(1)
    for _ in range(50):
        logits = torch.randn(20)
        kept = truncated(logits, top_k=8, top_p=0.7).isfinite()
        order = sorted(range(20), key=lambda i: -logits[i].item())[:8]
        probabilities = logits[order].softmax(0).tolist()
        wanted, total = set(), 0.0
        for index, probability in zip(order, probabilities, strict=True):
            if total >= 0.7:
                break
            wanted.add(index)
            total += probability
        assert set(kept.nonzero().squeeze(1).tolist()) == wanted
