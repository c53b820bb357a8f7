import itertools
import math

import pytest

from training_gym.rollouts.statistics import bootstrap_mean, paired_difference


def exact_quantiles(values):
    """2.5 % and 97.5 % points of the mean over every possible resample, each as likely."""
    means = sorted(math.fsum(s) / len(s) for s in itertools.product(values, repeat=len(values)))
    return means[int(0.025 * len(means))], means[int(0.975 * len(means)) - 1]


@pytest.mark.parametrize(
    "values", [(0.0, 1.0, 1.0, 1.0), (0.0, 0.3, 0.5, 0.9, 1.0), (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]
)
def test_the_interval_is_that_of_all_resamples(values):
    found = bootstrap_mean(values)
    low, high = exact_quantiles(values)
    spread = max(values) - min(values)
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert found.low == pytest.approx(low, abs=0.03 * spread)
    assert found.high == pytest.approx(high, abs=0.03 * spread)
    assert found.count == len(values)


def test_many_tasks_come_near_the_normal_interval():
    values = [float(place % 2) for place in range(400)]
    found = bootstrap_mean(values)
    half = 1.96 * 0.5 / math.sqrt(400)
    assert found.low == pytest.approx(0.5 - half, abs=0.004)
    assert found.high == pytest.approx(0.5 + half, abs=0.004)


def test_the_interval_repeats_and_depends_on_the_seed():
    values = [math.sin(place) for place in range(30)]
    assert bootstrap_mean(values) == bootstrap_mean(values)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values)


def test_one_task_and_none():
    one = bootstrap_mean([0.4])
    assert (one.low, one.mean, one.high, one.count) == (0.4, 0.4, 0.4, 1)
    none = bootstrap_mean([])
    assert none.count == 0
    assert math.isnan(none.mean)
    assert math.isnan(none.low)


def test_equal_values_have_no_spread():
    found = bootstrap_mean([0.25] * 9)
    assert (found.low, found.high) == (0.25, 0.25)


def test_a_difference_is_taken_within_tasks():
    # Tasks differ much, each gains the same: the pairing removes all of the spread.
    before = {f"t{place}": float(place) for place in range(20)}
    after = {task: value + 0.5 for task, value in before.items()}
    found = paired_difference(before, after)
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert bootstrap_mean(list(after.values())).low < 8


def test_a_difference_uses_only_tasks_that_both_have():
    found = paired_difference({"a": 0.0, "b": 1.0, "gone": 9.0}, {"a": 1.0, "b": 2.0, "new": 0.0})
    assert (found.mean, found.count) == (1.0, 2)
    assert paired_difference({"a": 1.0}, {"b": 1.0}).count == 0


def test_the_order_of_the_tasks_does_not_matter():
    before = {"a": 0.0, "b": 0.2, "c": 0.9}
    after = {"a": 0.5, "b": 0.1, "c": 1.0}
    turned = dict(reversed(list(after.items())))
    assert paired_difference(before, after) == paired_difference(before, turned)
