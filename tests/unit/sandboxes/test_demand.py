"""Demands beyond all measure are refused at once instead of being summed for hours."""

from __future__ import annotations

import pytest

from training_gym.sandboxes.demand import MOST_OUTSTANDING, Demand, size
from training_gym.spec.errors import SpecError


@pytest.mark.parametrize(
    ("episodes", "start_s", "hold_s"),
    [
        (99_999_999_999_999, 2.0, 60.0),
        (1, float("inf"), 60.0),
        (1, float("inf"), float("inf")),
        (1, 2.0, 1e-300),
    ],
)
def test_more_starts_than_can_be_counted_are_refused(episodes, start_s, hold_s):
    with pytest.raises(SpecError, match="under way at once"):
        size(Demand(episodes=episodes, start_s=start_s, hold_s=hold_s))


def test_the_largest_demand_that_is_answered():
    answer = size(Demand(episodes=int(MOST_OUTSTANDING), start_s=1.0, hold_s=1.0))
    assert answer.spares is not None
    assert answer.spares > MOST_OUTSTANDING
