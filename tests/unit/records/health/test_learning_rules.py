import math
import random

import pytest

from training_gym.records.health.history import Evaluated
from training_gym.records.health.improvement import risen_evaluation
from training_gym.records.health.rules import advice, learning
from training_gym.records.pairing import Difference
from training_gym.spec.health import Bounds, Thresholds

LIMITS = Thresholds()
MIXED = (0.0, 1.0, 1.0, 0.0)


def series(name, values, **constant):
    return [{name: value, **constant} for value in values]


@pytest.fixture
def evaluations():
    """Results of the suite `held`: step and mean of each, every task moving with the mean."""

    def make(*results, tasks=8):
        return tuple(
            Evaluated("held", step, mean, 0.1, {f"x{n}": mean + 0.01 * n for n in range(tasks)})
            for step, mean in results
        )

    return make


def test_zero_variance_is_the_share_of_equal_groups_and_says_where_they_lie(history, plays):
    steps = [plays(MIXED, (1.0,) * 4, (0.0,) * 4, (0.0,) * 4)] * 5
    found = learning.zero_variance(history(plays=steps), "env", LIMITS)
    assert found.value == 0.75
    assert found.severity == "warning"
    assert found.details == {"all_best": 5, "equal": 15, "groups": 20}
    assert "33% of them all at the best reward" in found.message
    assert len(found.evidence) == 3  # the same episodes again and again


def test_zero_variance_needs_three_steps(history, plays):
    steps = [plays((1.0,) * 4)] * 2
    assert learning.zero_variance(history(plays=steps), "env", LIMITS) is None


def test_rewards_that_are_all_zero_are_critical(history, plays):
    found = learning.zero_variance(history(plays=[plays((0.0,) * 4)] * 3), "env", LIMITS)
    assert (found.severity, found.message) == ("critical", "every reward so far is zero")


def test_a_solved_task_is_not_ill(history, plays):
    steps = [plays(MIXED), *[plays((1.0,) * 4, (1.0,) * 4)] * 9]
    found = learning.zero_variance(history(plays=steps), "env", LIMITS)
    assert found.value == 1.0
    assert found.severity == "advice"


def test_zero_variance_of_an_engine_without_episodes_comes_from_its_metric(history, plays):
    from training_gym.records.health.plays import Plays

    metrics = series("groups_equal_share", [0.95] * 4)
    found = learning.zero_variance(history(metrics, [Plays()] * 4), "env", LIMITS)
    assert found.severity == "critical"


@pytest.mark.parametrize(
    ("now", "severity"), [(0.9, None), (0.31, None), (0.29, "warning"), (0.09, "critical")]
)
def test_entropy_collapse_compares_with_the_median_of_steps_3_to_12(history, now, severity):
    values = [5.0, 5.0, *[1.0] * 10, now]
    metrics = series("entropy", values, reward_mean=0.5, reward_max=1.0)
    assert learning.entropy_collapse(history(metrics), "", LIMITS).severity == severity


def test_entropy_may_fall_while_the_reward_rises_or_is_at_its_best(history):
    rising = [
        {"entropy": 1.0 if at < 12 else 0.05, "reward_mean": at / 40, "reward_max": 1.0}
        for at in range(20)
    ]
    assert learning.entropy_collapse(history(rising), "", LIMITS).severity is None
    solved = [
        {"entropy": 1.0 if at < 12 else 0.05, "reward_mean": 0.97, "reward_max": 1.0}
        for at in range(20)
    ]
    assert learning.entropy_collapse(history(solved), "", LIMITS).severity is None


@pytest.mark.parametrize(
    ("first", "last", "rose"), [(9, 20, True), (0, 9, False)], ids=["lately", "long ago"]
)
def test_entropy_may_fall_while_an_evaluation_rises(history, evaluations, first, last, rose):
    values = [1.0 if at < 12 else 0.05 for at in range(20)]
    metrics = series("entropy", values, reward_mean=0.5, reward_max=1.0)
    told = history(metrics, evaluations=evaluations((first, 0.2), (last, 0.4), (20, 0.4)))
    found = learning.entropy_collapse(told, "", LIMITS)
    assert (found.severity is None) == rose
    assert ("while held rose by +0.2 (95 %" in found.message) == rose


@pytest.mark.parametrize(
    ("results", "advised"),
    [
        ([], True),
        ([(0, 0.2)], True),
        ([(0, 0.2), (25, 0.2)], True),
        ([(0, 0.4), (25, 0.2)], True),
        ([(0, 0.2), (5, 0.4), (25, 0.4)], True),
        ([(0, 0.2), (25, 0.4)], False),
        ([(0, 0.2), (5, 0.2), (15, 0.4)], False),
    ],
)
def test_a_higher_learning_rate_is_not_advised_while_an_evaluation_rises(
    history, evaluations, results, advised
):
    metrics = [
        {"reward_mean": 0.5 + 0.01 * (at % 2), "entropy": 1.0, "clipped_fraction": 0.0}
        for at in range(25)
    ]
    told = history(metrics, evaluations=evaluations(*results))
    found = advice.learning_rate_low(told, "", LIMITS)
    assert (found.severity == "advice", found.clear) == (advised, not advised)
    assert ("higher learning rate" in found.message) == advised
    assert ("held rose" in found.message) != advised


def test_one_task_that_rose_is_no_evaluation_that_rose(history, evaluations):
    told = history([{}] * 20, evaluations=evaluations((0, 0.2), (20, 0.9), tasks=5))
    assert risen_evaluation(told, 5) is None  # five may do so by chance
    told = history([{}] * 20, evaluations=evaluations((0, 0.2), (20, 0.9), tasks=6))
    assert risen_evaluation(told, 5) == ("held", Difference(*[pytest.approx(0.7)] * 3, 6))


@pytest.mark.parametrize(
    ("usual", "now", "severity"),
    [(1.0, 1.9, None), (1.0, 2.1, "warning"), (1.0, 4.1, "critical"), (0.2, 0.9, None)],
)
def test_entropy_blowup_needs_entropy_that_is_large_in_itself(history, usual, now, severity):
    metrics = series("entropy", [usual] * 12 + [now])
    assert learning.entropy_blowup(history(metrics), "", LIMITS).severity == severity


def test_a_policy_that_blows_up_at_once_is_compared_with_what_it_began_as(history):
    metrics = series("entropy", [2.0, 4.8, *[5.2] * 10])
    found = learning.entropy_blowup(history(metrics), "", LIMITS)
    assert found.severity == "warning"
    assert found.value == pytest.approx(2.6)


@pytest.mark.parametrize(("now", "severity"), [(4.9, None), (5.1, "warning"), (21.0, "critical")])
def test_grad_norm_is_compared_with_its_rolling_median(history, now, severity):
    metrics = series("grad_norm", [1.0] * 12 + [now])
    assert learning.grad_norm(history(metrics), "", LIMITS).severity == severity


@pytest.mark.parametrize("bad", [{"grad_norm": math.nan}, {"grad_norm": 1.0, "skipped": 1.0}])
def test_a_gradient_that_is_not_finite_is_critical_at_once(history, bad):
    found = learning.grad_norm(history([bad]), "", LIMITS)
    assert (found.severity, found.at_once) == ("critical", True)


def test_a_large_gradient_with_entropy_and_length_rising_is_critical(history):
    metrics = [{"grad_norm": 1.0, "entropy": 1.0, "response_tokens_mean": 10.0}] * 12
    metrics = [*metrics, {"grad_norm": 6.0, "entropy": 2.0, "response_tokens_mean": 30.0}]
    assert learning.grad_norm(history(metrics), "", LIMITS).severity == "critical"


def test_reward_drop_counts_standard_errors_below_the_best(history, plays):
    draw = random.Random(0)

    def step(level):
        return plays(*[[level + draw.gauss(0, 0.2) for _ in range(8)] for _ in range(4)])

    steady = [step(0.5) for _ in range(30)]
    assert learning.reward_drop(history(plays=steady), "env", LIMITS).severity is None
    fallen = [*steady[:20], *[step(0.1) for _ in range(10)]]
    found = learning.reward_drop(history(plays=fallen), "env", LIMITS)
    assert found.severity == "critical"
    assert found.details["fall"] == pytest.approx(0.4, abs=0.1)


def test_thresholds_may_be_changed(history):
    metrics = series("entropy", [1.0] * 12 + [0.5], reward_mean=0.5, reward_max=1.0)
    strict = Thresholds(entropy_collapse=Bounds(warning=0.6, critical=0.4))
    assert learning.entropy_collapse(history(metrics), "", strict).severity == "warning"


def test_without_a_metric_nothing_is_said(history):
    empty = history([{}] * 20)
    for rule in learning.RULES:
        if rule.scope == "run":
            assert rule.measure(empty, "", LIMITS) is None
