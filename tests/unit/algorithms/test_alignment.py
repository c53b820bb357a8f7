import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.algorithms.alignment import shared_spans, span_advantages


def test_equal_cuts_give_spans_of_one_token():
    spans = shared_spans([1, 2, 3], [1, 2, 3])
    assert spans == [(slice(n, n + 1), slice(n, n + 1)) for n in range(3)]
    # One token a span: minus k1 of the reverse KL at each.
    assert span_advantages([-1.0, -2.0, -3.0], [-1.5, -1.0, -3.0], spans) == [-0.5, 1.0, 0.0]


def test_tokens_are_merged_up_to_the_next_shared_cut():
    # "strawberry!" as str|aw|berry|! and straw|b|erry|!
    spans = shared_spans([3, 5, 10, 11], [5, 6, 10, 11])
    assert spans == [
        (slice(0, 2), slice(0, 1)),
        (slice(2, 3), slice(1, 3)),
        (slice(3, 4), slice(3, 4)),
    ]
    found = span_advantages([-1.0, -1.0, -2.0, -0.5], [-1.5, -1.0, -2.0, -1.0], spans)
    assert found == pytest.approx([0.5, 0.5, -1.0, -0.5])


def test_a_token_that_ends_within_a_character_is_no_cut():
    assert shared_spans([None, 1, 2], [1, 2]) == [
        (slice(0, 2), slice(0, 1)),
        (slice(2, 3), slice(1, 2)),
    ]


def test_tokens_without_text_belong_to_the_span_before():
    assert shared_spans([1, 1, 2], [1, 2]) == [
        (slice(0, 2), slice(0, 1)),
        (slice(2, 3), slice(1, 2)),
    ]


def test_what_has_no_counterpart_gets_no_advantage():
    spans = shared_spans([2, 4, 6], [2, 4])
    assert span_advantages([-1.0] * 3, [-3.0, -1.0], spans) == [-2.0, 0.0, 0.0]
    assert shared_spans([], [1]) == []


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)), st.integers(31, 40))
def test_the_spans_of_one_text_cover_all_of_it_once(first, second, end):
    ours, theirs = sorted({*first, end}), sorted({*second, end})
    spans = shared_spans(ours, theirs)
    for side, cuts in ((0, ours), (1, theirs)):
        covered = [n for span in spans for n in range(span[side].start, span[side].stop)]
        assert covered == list(range(len(cuts)))
    for mine, other in spans:
        assert ours[mine.stop - 1] == theirs[other.stop - 1]
    # Whatever the cuts, the whole text's difference is the sum over spans.
    logprobs = [-0.1 * n for n in ours], [-0.2 * n for n in theirs]
    found = span_advantages(*logprobs, spans)
    total = sum(found[mine.start] for mine, _ in spans)
    assert total == pytest.approx(sum(logprobs[1]) - sum(logprobs[0]))
