import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.algorithms.advantages import group_relative, overlong_penalty


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
