"""Ranges as options take them."""

import pytest

from training_gym.cli.failures import UsageError
from training_gym.cli.views.common import range_of


@pytest.mark.parametrize(
    ("text", "ends"),
    [("3", (3, 3)), ("2..5", (2, 5)), ("0.5..", (0.5, None)), ("..1", (None, 1)), ("4..4", (4, 4))],
)
def test_a_range_is_read(text, ends):
    found = range_of(text, "--step")
    assert (found.low, found.high) == ends


@pytest.mark.parametrize("text", ["100..90", "nan", "x", "", "1..2..3"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(UsageError, match="--step"):
        range_of(text, "--step")
