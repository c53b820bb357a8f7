import math
import statistics
import sys
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from training_gym.records.means import deviation_of, mean_of

MODERATE = st.floats(-1e12, 1e12)


@given(st.lists(MODERATE, min_size=2, max_size=20))
def test_they_are_the_standard_librarys(values):
    assert mean_of(values) == pytest.approx(statistics.fmean(values))
    assert deviation_of(values) == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-3)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
@example([sys.float_info.max] * 3)
@example([sys.float_info.max, sys.float_info.max, -sys.float_info.max])
@example([sys.float_info.min, 5e-324])
def test_no_finite_numbers_are_too_large(values):
    exact = sum(map(Fraction, values)) / len(values)
    assert mean_of(values) == pytest.approx(float(exact), rel=1e-15, abs=5e-324)
    assert deviation_of(values) >= 0


def test_extremes():
    assert mean_of([1e308] * 8) == pytest.approx(1e308)
    assert (
        deviation_of([1e308, -1e308, 1e308]) == math.inf
        or deviation_of([1e308, -1e308, 1e308]) > 1e308
    )
    assert deviation_of([5.0, 5.0]) == 0.0
