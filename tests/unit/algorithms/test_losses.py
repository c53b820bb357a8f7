import math

import pytest
import torch

from training_gym.algorithms.losses import (
    bounded_weight_loss,
    clipped_fraction,
    clipped_policy_loss,
    likelihood_loss,
    token_weights,
    value_loss,
)
from training_gym.algorithms.ratios import log_ratios


def test_policy_loss_on_hand_computed_numbers():
    # Ratios 1.5 (clipped to 1.28 for A > 0), 0.5 (clipped to 0.8 for A < 0), 1.0.
    logprobs = torch.tensor([math.log(1.5), math.log(0.5), 0.0])
    loss = clipped_policy_loss(
        logprobs,
        torch.tensor([1.0, -1.0, 2.0]),
        torch.tensor([0.5, 0.25, 0.25]),
        clip_low=0.2,
        clip_high=0.28,
    )
    assert loss.item() == pytest.approx(-(0.5 * 1.28 + 0.25 * -0.8 + 0.25 * 2.0))


def test_policy_loss_gradient_by_finite_differences():
    torch.manual_seed(0)
    logprobs = torch.randn(12, dtype=torch.float64, requires_grad=True)
    old, advantages = torch.randn(12, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    weights = torch.rand(12, dtype=torch.float64)

    def loss(values):
        return clipped_policy_loss(values - old, advantages, weights, clip_low=0.2, clip_high=0.28)

    assert torch.autograd.gradcheck(loss, (logprobs,), eps=1e-7, atol=1e-6)


def test_on_policy_gradient_is_the_advantage():
    logprobs = torch.zeros(3, requires_grad=True)
    advantages = torch.tensor([1.0, -2.0, 0.5])
    loss = clipped_policy_loss(logprobs, advantages, torch.ones(3), clip_low=0.2, clip_high=0.2)
    loss.backward()
    assert torch.allclose(logprobs.grad, -advantages)


def test_clipped_fraction_counts_lost_gradients_only():
    logprobs = torch.log(torch.tensor([1.5, 1.5, 0.5, 0.5]))
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    share = clipped_fraction(logprobs, advantages, clip_low=0.2, clip_high=0.2)
    assert share.item() == 0.5


def test_likelihood_loss_is_weighted_negative_logprob():
    loss = likelihood_loss(torch.tensor([-1.0, -2.0]), torch.tensor([0.5, 0.25]))
    assert loss.item() == pytest.approx(1.0)


MASKS = [[False, True, True], [True] * 6, [False, True]]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("sequence_mean", [[0, 1 / 6, 1 / 6], [1 / 18] * 6, [0, 1 / 3]]),
        ("token_mean", [[0, 1 / 9, 1 / 9], [1 / 9] * 6, [0, 1 / 9]]),
        ("constant", [[0, 1 / 30, 1 / 30], [1 / 30] * 6, [0, 1 / 30]]),
    ],
)
def test_token_weights(aggregation, expected):
    weights = token_weights(MASKS, [1, 1, 1], aggregation=aggregation, max_response_tokens=10)
    for found, wanted in zip(weights, expected, strict=True):
        assert found == pytest.approx(wanted)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
def test_splitting_an_episode_never_changes_its_weight(aggregation):
    whole = token_weights(
        [[True] * 8, [True] * 3], [1, 1], aggregation=aggregation, max_response_tokens=16
    )
    split = token_weights(
        [[True] * 6, [False] * 6 + [True] * 2, [True] * 3],
        [6 / 8, 2 / 8, 1],
        aggregation=aggregation,
        max_response_tokens=16,
    )
    assert split[0] + [w for w in split[1] if w] == pytest.approx(whole[0])
    assert split[2] == pytest.approx(whole[1])


def test_dual_clip_bounds_what_a_bad_token_can_cost():
    # ρ = 5 with A = -1: min(ρA, 1.2A) = -5, bounded by c A = -3; with A = +1 nothing changes.
    ratios = torch.log(torch.tensor([5.0, 5.0, 2.0]))
    advantages, weights = torch.tensor([-1.0, 1.0, -1.0]), torch.ones(3)
    clips = {"clip_low": 0.2, "clip_high": 0.2}
    plain = clipped_policy_loss(ratios, advantages, weights, **clips)
    dual = clipped_policy_loss(ratios, advantages, weights, **clips, dual_clip=3.0)
    assert plain.item() == pytest.approx(5.0 - 1.2 + 2.0)
    assert dual.item() == pytest.approx(3.0 - 1.2 + 2.0)
    shares = [
        clipped_fraction(ratios, advantages, **clips, dual_clip=bound).item()
        for bound in (None, 3.0)
    ]
    assert shares == pytest.approx([1 / 3, 2 / 3])


def test_cispo_bounds_the_weight_and_keeps_the_gradient():
    logprobs = torch.log(torch.tensor([0.8, 0.3])).requires_grad_()
    old = torch.log(torch.tensor([0.1, 0.6]))
    advantages, weights = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.5])
    loss = bounded_weight_loss(logprobs, logprobs - old, advantages, weights, ratio_max=5.0)
    # Ratios 8, bounded to 5, and 0.5.
    expected = -(0.5 * 5 * 2 * math.log(0.8) + 0.5 * 0.5 * -1 * math.log(0.3))
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-5.0, 0.25])


def test_value_loss_on_hand_computed_numbers():
    values = torch.tensor([1.0, 1.0, 0.1])
    targets = torch.tensor([2.0, 2.0, 1.0])
    old = torch.tensor([0.0, 0.95, 0.0])
    weights = torch.tensor([0.5, 0.25, 0.25])
    # Clipped to 0.2, 1.0, 0.1: squares max(1, 3.24), max(1, 1), max(0.81, 0.81).
    clipped = value_loss(values, targets, old, weights, value_clip=0.2)
    assert clipped.item() == pytest.approx((0.5 * 3.24 + 0.25 * 1 + 0.25 * 0.81) / 2)
    plain = value_loss(values, targets, old, weights, value_clip=None)
    assert plain.item() == pytest.approx((0.5 + 0.25 + 0.25 * 0.81) / 2)


def losses_of(values, generator):
    """Every policy and value loss on random numbers."""
    old, advantages = (torch.randn(12, dtype=torch.float64, generator=generator) for _ in range(2))
    weights = torch.rand(12, dtype=torch.float64, generator=generator)
    rows = torch.arange(12) // 4
    clips = {"clip_low": 0.2, "clip_high": 0.28}
    yield clipped_policy_loss(values - old, advantages, weights, **clips, dual_clip=2.0)
    for level in ("sequence_mean", "sequence_product"):
        yield clipped_policy_loss(
            log_ratios(values, old, rows, level), advantages, weights, **clips
        )
    yield value_loss(values, advantages, old, weights, value_clip=0.5)
    yield likelihood_loss(values, weights)


@pytest.mark.parametrize("number", range(5))
def test_losses_by_finite_differences(number):
    torch.manual_seed(number)
    values = torch.randn(12, dtype=torch.float64, requires_grad=True)

    def loss(given):
        return list(losses_of(given, torch.Generator().manual_seed(7)))[number]

    assert torch.autograd.gradcheck(loss, (values,), eps=1e-7, atol=1e-6)
