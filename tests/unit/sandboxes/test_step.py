"""The 10,000-rollout step against the reference's table, renewal theory and a second simulation."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from training_gym.sandboxes.step import Step, floor_s, step_s, table

REFERENCE = {  # concurrent: worst, typical, with deaths, single use at 40 creations a second
    100: (1000, 387, 426, 434),
    250: (400, 159, 179, 265),
    500: (200, 83, 98, 265),
    1000: (100, 45, 56, 265),
    2000: (50, 26, 36, 265),
    5000: (20, 15, 25, 265),
    10_000: (10, 10, 21, 265),
}


@pytest.fixture(scope="module")
def rows():
    return {row.concurrent: row for row in table(Step())}


@pytest.mark.parametrize("concurrent", REFERENCE)
def test_the_reference_table(rows, concurrent):
    row = rows[concurrent]
    worst, typical, deaths, single_use = REFERENCE[concurrent]
    assert row.worst_s == worst
    assert row.typical_s == pytest.approx(typical, rel=0.015, abs=0.5)
    assert row.deaths_s == pytest.approx(deaths, rel=0.05, abs=0.6)  # both are one simulation
    assert row.single_use_s == pytest.approx(single_use, rel=0.015)


@pytest.mark.parametrize(("creates", "known"), [(5, 2010), (40, 260), (168, 70), (1000, 20)])
def test_the_floor_set_by_creation(creates, known):
    assert floor_s(Step(create_limit_per_s=creates)) == pytest.approx(known, abs=0.6)


def test_one_place_after_another_by_the_second():
    """A second simulation that moves a clock instead of a queue of events."""
    step = Step(rollouts=60, longest_s=9, start_s=1, death=0.0, sigma=0.5)
    draw, actions = random.Random(11), []
    for _ in range(step.rollouts):
        draw.random()
        actions.append(min(9.0, 3.0 * math.exp(0.5 * draw.gauss(0.0, 1.0))))
    running, now, tick = [], 0.0, 0.001
    while actions or running:
        running = [left - tick for left in running if left > tick]
        while actions and len(running) < 7:
            running.append(1.0 + actions.pop(0))
        now += tick
    assert step_s(step, 7, seed=11) == pytest.approx(now, abs=0.1)


def test_renewal_theory_gives_the_typical_step(rows):
    """The queue empties after `E·(R/S - 1/2 - E²'/2E²)`; then the last residual ends."""
    points = 40_000
    draw = random.Random(2)
    lengths = [min(10.0, 3.0 * math.exp(0.8 * draw.gauss(0, 1))) for _ in range(points)]
    mean = sum(lengths) / points
    square = sum(length * length for length in lengths) / points
    for width in (100, 250, 500):
        empty = mean * (10_000 / width - 0.5 - (square - mean**2) / (2 * mean**2))
        assert empty < rows[width].typical_s < empty + 10.0


def test_wider_is_never_slower_but_deaths_put_an_end_to_it(rows):
    ordered = [rows[width] for width in sorted(rows)]
    for narrow, wide in itertools.pairwise(ordered):
        assert wide.worst_s < narrow.worst_s
        assert wide.typical_s < narrow.typical_s
    assert ordered[-1].deaths_s > 2 * ordered[-1].typical_s
