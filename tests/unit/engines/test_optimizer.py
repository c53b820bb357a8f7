import math

import pytest
import torch

from training_gym.engines.local.optimizer import Optimizer, learning_rate
from training_gym.spec.recipe import AdamW


def rates(total, **settings):
    made = AdamW(learning_rate=1.0, **settings)
    return [round(learning_rate(made, step, total), 6) for step in range(total)]


def test_schedules_on_numbers_worked_out_by_hand():
    assert rates(3) == [1.0, 1.0, 1.0]
    assert rates(4, warmup_steps=2) == [0.5, 1.0, 1.0, 1.0]
    assert rates(5, schedule="linear") == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert rates(5, schedule="linear", final_fraction=0.2) == [1.0, 0.8, 0.6, 0.4, 0.2]
    half = round(math.sqrt(0.5) / 2, 6)
    assert rates(5, schedule="cosine") == [1.0, 0.5 + half, 0.5, 0.5 - half, 0.0]
    assert rates(6, schedule="linear", warmup_steps=3) == [0.333333, 0.666667, 1.0, 1.0, 0.5, 0.0]


def test_a_rate_past_the_end_stays_at_the_floor():
    made = AdamW(learning_rate=2.0, schedule="cosine", final_fraction=0.25)
    assert learning_rate(made, 100, 5) == pytest.approx(0.5)
    assert rates(1, schedule="linear") == [1.0]


def parameters():
    torch.manual_seed(0)
    return [
        ("matrix", torch.nn.Parameter(torch.randn(3, 2))),
        ("vector", torch.nn.Parameter(torch.ones(2))),
    ]


def test_matrices_decay_and_vectors_do_not():
    named = parameters()
    before = [parameter.detach().clone() for _, parameter in named]
    optimizer = Optimizer(named, AdamW(learning_rate=0.1, weight_decay=0.5), 10)
    for _, parameter in named:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.update()
    assert torch.allclose(named[0][1], before[0] * (1 - 0.1 * 0.5))
    assert torch.equal(named[1][1], before[1])


def test_gradients_are_clipped_together():
    named = parameters()
    optimizer = Optimizer(named, AdamW(learning_rate=0.1, max_grad_norm=1.0), 10)
    for _, parameter in named:
        parameter.grad = torch.full_like(parameter, 3.0)
    assert optimizer.update()["grad_norm"] == pytest.approx(math.sqrt(8 * 9))
    first_moment = optimizer.state()["adam"]["state"][0]["exp_avg"]
    assert torch.allclose(first_moment, torch.full((3, 2), 0.1 / math.sqrt(8)), atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(value):
    named = parameters()
    before = [parameter.detach().clone() for _, parameter in named]
    optimizer = Optimizer(named, AdamW(learning_rate=0.1), 10)
    named[0][1].grad = torch.full((3, 2), value)
    named[1][1].grad = torch.ones(2)
    metrics = optimizer.update()
    assert metrics["skipped"] == 1.0
    for (_, parameter), old in zip(named, before, strict=True):
        assert torch.equal(parameter, old)
        assert parameter.grad is None
    named[0][1].grad = torch.ones(3, 2)
    named[1][1].grad = torch.ones(2)
    assert optimizer.update()["skipped"] == 0.0
    assert torch.isfinite(named[0][1]).all()
    assert optimizer.step_number == 2
