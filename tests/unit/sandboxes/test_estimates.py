"""What the pool learns: rates and durations."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.sandboxes.pool.estimates import ArrivalRate, Durations


def arrivals(rate_per_s: float, seconds: float, seed: int):
    draw, now = random.Random(seed), 0.0
    while (now := now + draw.expovariate(rate_per_s)) < seconds:
        yield now


@pytest.mark.parametrize("seconds", [5, 30, 200])
def test_the_rate_is_unbiased_young_and_old(seconds):
    found = []
    for seed in range(40):
        rate = ArrivalRate(30.0, now=0.0)
        for now in arrivals(8.0, seconds, seed):
            rate.record(now)
        found.append(rate.per_s(seconds))
    assert statistics.fmean(found) == pytest.approx(8.0, rel=0.06)


def test_its_stated_uncertainty_is_the_true_one():
    rates, uppers = [], []
    for seed in range(120):
        rate = ArrivalRate(10.0, now=0.0)
        for now in arrivals(8.0, 60.0, seed):
            rate.record(now)
        rates.append(rate.per_s(60.0))
        uppers.append(rate.upper_per_s(60.0) - rate.per_s(60.0))
    assert statistics.fmean(uppers) == pytest.approx(statistics.stdev(rates), rel=0.2)


def test_a_rate_nobody_feeds_fades():
    rate = ArrivalRate(30.0, now=0.0)
    for now in arrivals(8.0, 100.0, 1):
        rate.record(now)
    assert rate.per_s(130.0) == pytest.approx(rate.per_s(100.0) / 2.718, rel=0.1)
    assert rate.per_s(1000.0) < 1e-10


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=60), st.floats(0, 0.999))
def test_quantiles_are_those_of_the_latest(values, share):
    durations = Durations(keep=20)
    for value in values:
        durations.record(value)
    kept = sorted(values[-20:])
    assert durations.quantile(share) == kept[int(share * len(kept))]
    assert durations.quantile(share, at_least=21) is None
    assert min(values) * 0.999 <= durations.mean_s <= max(values) * 1.001


def test_the_mean_follows_a_doubling():
    durations = Durations()
    for _ in range(100):
        durations.record(2.0)
    for _ in range(60):
        durations.record(4.0)
    assert durations.mean_s == pytest.approx(4.0, rel=0.05)
