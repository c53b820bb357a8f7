import math

import pytest
import torch

from training_gym.algorithms.losses import (
    clipped_fraction,
    clipped_policy_loss,
    likelihood_loss,
    token_weights,
)


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
