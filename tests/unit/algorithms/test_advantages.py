import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.algorithms.advantages import (
    gae,
    group_relative,
    leave_one_out,
    normalized,
    overlong_penalty,
    returns_to_go,
    token_rewards,
)


def test_grpo_on_hand_computed_numbers():
    # mean 2, deviations -1 0 1, sample standard deviation 1
    advantages = group_relative([1.0, 2.0, 3.0], normalize_by_std=True)
    assert advantages == pytest.approx([-1 / 1.0001, 0.0, 1 / 1.0001])


def test_dr_grpo_leaves_the_scale():
    assert group_relative([0.0, 0.0, 3.0], normalize_by_std=False) == [-1.0, -1.0, 2.0]


@pytest.mark.parametrize("rewards", [[], [5.0], [0.1, 0.1, 0.1]])
def test_no_difference_no_advantage(rewards):
    assert group_relative(rewards, normalize_by_std=True) == [0.0] * len(rewards)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=32), st.booleans())
def test_advantages_sum_to_zero_and_keep_the_order(rewards, normalize):
    advantages = group_relative(rewards, normalize_by_std=normalize)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-6)
    for a, r in zip(advantages, rewards, strict=True):
        for b, s in zip(advantages, rewards, strict=True):
            if r > s:
                assert a >= b


def test_overlong_penalty_falls_linearly_in_the_buffer():
    penalties = [overlong_penalty(n, limit=100, buffer=20, penalty=1.0) for n in (80, 90, 100, 120)]
    assert penalties == [0.0, -0.5, -1.0, -1.0]
    assert overlong_penalty(1000, limit=100, buffer=0, penalty=1.0) == 0.0


def test_rloo_on_hand_computed_numbers():
    # Others' means: 2.5, 2, 1.5
    assert leave_one_out([1.0, 2.0, 3.0]) == pytest.approx([-1.5, 0.0, 1.5])
    assert leave_one_out([4.0]) == [0.0]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=16))
def test_rloo_against_its_definition(rewards):
    expected = []
    for place, reward in enumerate(rewards):
        others = rewards[:place] + rewards[place + 1 :]
        expected.append(reward - sum(others) / len(others))
    assert leave_one_out(rewards) == pytest.approx(expected, abs=1e-9)


def test_a_reward_comes_last_and_penalties_at_their_tokens():
    assert token_rewards(2.0, 3) == [0.0, 0.0, 2.0]
    assert token_rewards(2.0, 3, [0.5, 0.0, 0.25]) == [-0.5, 0.0, 1.75]
    assert token_rewards(2.0, 0) == []


def test_returns_to_go_on_hand_computed_numbers():
    assert returns_to_go([1.0, 2.0, 4.0]) == [7.0, 6.0, 4.0]
    assert returns_to_go([1.0, 2.0, 4.0], discount=0.5) == [3.0, 4.0, 4.0]


def test_gae_on_hand_computed_numbers():
    # δ = 0 + 0.5·2 - 1 = 0, 1 + 0.5·4 - 2 = 1, 3 - 4 = -1; γλ = 0.25
    advantages, targets = gae([0.0, 1.0, 3.0], [1.0, 2.0, 4.0], discount=0.5, gae_lambda=0.5)
    assert advantages == pytest.approx([0.1875, 0.75, -1.0])
    assert targets == pytest.approx([1.1875, 2.75, 3.0])


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=1, max_size=12),
    st.floats(0.5, 1),
    st.floats(0, 1),
)
def test_gae_against_the_mixture_of_n_step_returns(steps, discount, lam):
    """The λ-return, from its definition: (1 - λ) Σ λⁿ⁻¹ G⁽ⁿ⁾, the last n taking what is left."""
    rewards, values = [list(column) for column in zip(*steps, strict=True)]
    length = len(rewards)
    _, targets = gae(rewards, values, discount=discount, gae_lambda=lam)
    for t in range(length):
        expected = 0.0
        for n in range(1, length - t + 1):
            n_step = sum(discount**k * rewards[t + k] for k in range(n))
            last = t + n == length
            n_step += 0.0 if last else discount**n * values[t + n]
            expected += lam ** (n - 1) * (1.0 if last else 1 - lam) * n_step
        assert targets[t] == pytest.approx(expected, abs=1e-7)


def test_normalising_is_over_all_rows_together():
    found = normalized([[1.0, 3.0], [5.0, 7.0]])
    assert [round(value, 6) for row in found for value in row] == pytest.approx(
        [-3 / 5**0.5, -1 / 5**0.5, 1 / 5**0.5, 3 / 5**0.5], abs=1e-6
    )
    assert normalized([[], []]) == [[], []]
    assert normalized([[2.0], [2.0]]) == [[0.0], [0.0]]
