import math
from dataclasses import replace

import pytest

from training_gym.records.health.history import Evaluated, Facts
from training_gym.records.health.rules import agreement
from training_gym.spec.health import Thresholds

LIMITS = Thresholds()


def log(factor):
    return math.log(factor)


def matched(**changes):
    return {
        "mismatch_mean": 1e-6,
        "kl_to_sampler": 1e-9,
        "effective_sample_share": 1.0,
        "ratio_mean": 1.0,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, None),
        ({"mismatch_mean": log(1.03)}, None),  # above the warning, but not rising
        ({"mismatch_mean": log(1.06)}, "critical"),
        ({"kl_to_sampler": 0.02}, "warning"),
        ({"kl_to_sampler": 0.2}, "critical"),
        ({"effective_sample_share": 0.2}, "warning"),
        ({"ratio_mean": 2.1}, "warning"),
        ({"ratio_mean": 0.4}, "warning"),
    ],
)
def test_mismatch_has_several_signs(history, changes, severity):
    metrics = [matched(**changes)] * 6
    assert agreement.mismatch(history(metrics), "", LIMITS).severity == severity


def test_a_mismatch_that_rises_warns_earlier(history):
    metrics = [matched(mismatch_mean=log(1.0 + 0.004 * at)) for at in range(8)]
    assert agreement.mismatch(history(metrics), "", LIMITS).severity == "warning"


def test_of_several_updates_only_the_first_ones_mismatch_tells(history):
    facts = Facts(updates_per_batch=2)
    moved = [matched(kl_to_sampler=0.5, effective_sample_share=0.1, ratio_mean=3.0)] * 6
    assert agreement.mismatch(history(moved, facts=facts), "", LIMITS).severity is None
    wrong = [matched(mismatch_mean=log(1.5))] * 6
    assert agreement.mismatch(history(wrong, facts=facts), "", LIMITS).severity == "critical"


def test_where_episodes_are_older_than_the_policy_only_the_samplers_own_metrics_tell(history):
    facts = Facts(staleness_bound=1.0)
    metrics = [matched(mismatch_mean=log(1.5))] * 6
    assert agreement.mismatch(history(metrics, facts=facts), "", LIMITS) is None
    named = [{"sampler_mismatch_mean": log(1.5)}] * 6
    assert agreement.mismatch(history(named, facts=facts), "", LIMITS).severity == "critical"


def test_kl_is_compared_with_its_own_median(history):
    quiet = [{"kl_to_reference": 0.01 + 0.0001 * (at % 3)} for at in range(30)]
    assert agreement.kl_spike(history(quiet), "", LIMITS).severity is None
    spike = [*quiet, {"kl_to_reference": 0.018}]
    assert agreement.kl_spike(history(spike), "", LIMITS).severity == "warning"
    worse = [*quiet, {"kl_to_reference": 0.1}]
    assert agreement.kl_spike(history(worse), "", LIMITS).severity == "critical"


def test_a_kl_of_rounding_errors_is_never_a_spike(history):
    metrics = [{"kl_to_sampler": 1e-9}] * 30 + [{"kl_to_sampler": 1e-5}]
    assert agreement.kl_spike(history(metrics), "", LIMITS).severity is None


def test_a_kl_that_rises_for_nothing_warns(history):
    metrics = [
        {"kl_to_reference": 0.0002 * at**2, "reward_mean": 0.5 + 0.01 * (-1) ** at}
        for at in range(1, 31)
    ]
    found = agreement.kl_spike(history(metrics), "", LIMITS)
    assert found.severity == "warning"
    learning = [{**one, "reward_mean": at / 30} for at, one in enumerate(metrics)]
    assert agreement.kl_spike(history(learning), "", LIMITS).severity is None


@pytest.mark.parametrize(("share", "severity"), [(0.1, None), (0.3, "warning"), (0.5, "critical")])
def test_clip_fraction(history, share, severity):
    found = agreement.clip_fraction(history([{"clipped_fraction": share}]), "", LIMITS)
    assert found.severity == severity


def test_staleness_knows_the_recipes_bound_and_the_users(history):
    metrics = [{"policy_lag_mean": 2.5}]
    bounded = history(metrics, facts=Facts(staleness_bound=2.0))
    assert agreement.staleness(bounded, "", LIMITS).severity == "warning"
    loose = Thresholds(staleness_bound=3.0)
    assert agreement.staleness(bounded, "", loose).severity is None
    assert agreement.staleness(history(metrics), "", LIMITS) is None
    dropped = history([{"stale_dropped_share": 0.2}])
    assert agreement.staleness(dropped, "", LIMITS).severity == "warning"


def evaluated(*means, error=0.01):
    return tuple(Evaluated("held", 5 * at, mean, error) for at, mean in enumerate(means))


def test_the_best_of_many_evaluations_is_high_by_chance_too(history):
    rising = [{"reward_mean": at / 20} for at in range(20)]
    few, many = (0.6, 0.57), (*[0.5] * 12, 0.6, 0.57)
    found = [
        agreement.train_eval_gap(history(rising, evaluations=evaluated(*means)), "held", LIMITS)
        for means in (few, many)
    ]
    assert [reading.severity for reading in found] == ["warning", None]


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        ((1.0,), (0.0,), None),  # two samples of one task
        ((1.0,) * 5, (0.0,) * 5, None),
        ((1.0,) * 8, (0.0,) * 8, "warning"),
        ((1.0,) * 8, (0.0,) * 2 + (1.0,) * 6, None),
    ],
)
def test_an_evaluation_of_few_tasks_tells_nothing(history, before, after, severity):
    rising = [{"reward_mean": at / 20} for at in range(20)]
    found = [
        Evaluated("held", 5 * at, sum(means) / len(means), 0.0, dict(zip("abcdefgh", means)))
        for at, means in enumerate((before, after))
    ]
    reading = agreement.train_eval_gap(history(rising, evaluations=tuple(found)), "held", LIMITS)
    assert reading.severity == severity
    unnamed = tuple(replace(one, task_means={}) for one in found)  # and no error either
    reading = agreement.train_eval_gap(history(rising, evaluations=unnamed), "held", LIMITS)
    assert reading.severity is None


@pytest.mark.parametrize(
    ("means", "severity"),
    [
        ((0.5, 0.6, 0.7), None),
        ((0.5, 0.7, 0.69), None),
        ((0.5, 0.7, 0.6), "warning"),
        ((0.5, 0.7, 0.6, 0.5), "critical"),
        ((0.5, 0.7, 0.6, 0.7), None),
    ],
)
def test_an_evaluation_that_falls_while_training_rises(history, means, severity):
    rising = [{"reward_mean": at / 20} for at in range(20)]
    found = agreement.train_eval_gap(history(rising, evaluations=evaluated(*means)), "held", LIMITS)
    assert found.severity == severity
    falling = [{"reward_mean": -at / 20} for at in range(20)]
    found = agreement.train_eval_gap(
        history(falling, evaluations=evaluated(*means)), "held", LIMITS
    )
    assert found.severity is None
