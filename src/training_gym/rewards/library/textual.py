"""Exact and regular-expression matches."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from training_gym.rewards.library.answers import after_last, expected, last_match
from training_gym.spec.episodes import Episode
from training_gym.spec.settings import Settings

_PUNCTUATION = re.compile(r"[^\w\s]|_")


class ExactMatch(Settings):
    """1 if the completion is the answer, or one of a list of answers, else 0."""

    ignore_case: bool = True
    ignore_punctuation: bool = False
    """Compare letters, digits and the spaces between words only."""
    after: str | None = None
    """Look only behind the last occurrence of this text, such as `Answer:`."""

    def __call__(self, episode: Episode) -> float:
        """Compare text with white space at the ends and between words made equal."""
        answer = episode.answer
        accepted = answer if isinstance(answer, list) else [expected(episode)]
        given = self._normal(after_last(episode.completion, self.after))
        return float(any(given == self._normal(str(text)) for text in accepted))

    def _normal(self, text: str) -> str:
        if self.ignore_punctuation:
            text = _PUNCTUATION.sub(" ", text)
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text


class RegexMatch(Settings):
    r"""1 if a regular expression is found in the completion, else 0.

    Common patterns such as `(\w+) is` take quadratic time, so only the end of a long completion
    is searched; a pattern that backtracks without end is ended by the reward's timeout.
    """

    pattern: str
    """Python regular expression; `^` and `$` match at every line."""
    equals_answer: bool = False
    """The last match must also equal the task's answer: its first group, or all of it."""
    whole: bool = False
    """The pattern must match the whole completion, white space at the ends aside."""
    ignore_case: bool = False
    longest: int = Field(10_000, ge=1)
    """Only so many characters at the end of the completion are searched."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    def __call__(self, episode: Episode) -> float:
        """Search the completion."""
        flags = re.MULTILINE | (re.IGNORECASE if self.ignore_case else 0)
        pattern = re.compile(self.pattern, flags)
        text = episode.completion[-self.longest :]
        if self.whole:
            last = pattern.fullmatch(text.strip())
        elif self.equals_answer:
            last = last_match(pattern, text)
        else:
            last = pattern.search(text)
        if last is None:
            return 0.0
        if not self.equals_answer:
            return 1.0
        found = last[1] if pattern.groups else last[0]
        return float(found is not None and found.strip() == expected(episode).strip())
