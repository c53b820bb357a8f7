"""The letter of a multiple-choice answer."""

from __future__ import annotations

import re

from pydantic import Field

from training_gym.rewards.library.answers import expected, last_boxed, last_match
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.settings import Settings

_WRAP = r"[(\[*_\"'`$\s]{0,4}"
_COMMAND = re.compile(r"\\[a-z]+\{([^{}]*)\}")
"""Such as `\\textbf{(B)}` inside a box."""


class ChoiceLetter(Settings):
    r"""1 if the completion chooses the answer's letter, else 0.

    The letter is taken from the last `\boxed{…}`, else from the last "answer: X" or
    "answer is X", else from a completion or last line that is a letter, or begins or ends with
    one in the form `(X)` or `X.`; a letter in running text does not count.
    """

    letters: str = Field("ABCDEFGHIJ", min_length=2)
    """Letters one can choose from, in order; an answer that is a number counts them from 0."""

    def __call__(self, episode: Episode) -> float:
        """Compare the chosen letter with the task's."""
        return float(self.chosen(episode.completion) == self._expected(episode))

    def chosen(self, text: str) -> str | None:
        """The letter that a text chooses, as a capital, or None."""
        boxed = last_boxed(text)
        if boxed is not None:
            return self._alone(_COMMAND.sub(r"\1", boxed[:500]))
        said = re.compile(rf"\b(?i:answer)\b(?: is)?\s?:?{_WRAP}([{self._set}])(?!\w)")
        found = last_match(said, text)
        if found is not None:
            return found[1].upper()
        lines = text.strip().splitlines()
        return self._alone(lines[-1]) if lines else None

    @property
    def _set(self) -> str:
        return re.escape(self.letters)

    def _alone(self, line: str) -> str | None:
        """The letter of a line that is one, or begins or ends with one marked as a choice."""
        line = line.strip()[-500:]
        for pattern in (
            rf"^{_WRAP}((?i:[{self._set}]))[)\]*_\"'`$.:\s]*$",
            rf"^(?:\(([{self._set}])\)|([{self._set}])[.):])\s",
            rf"(?:\(([{self._set}])\)|\s([{self._set}]))\.?$",
        ):
            found = re.search(pattern, line)
            if found:
                return next(group for group in found.groups() if group).upper()
        return None

    def _expected(self, episode: Episode) -> str:
        answer = expected(episode).strip().strip("().").upper()
        if answer.isdecimal() and len(answer) < 3 and int(answer) < len(self.letters):
            return self.letters[int(answer)].upper()
        if len(answer) != 1 or answer not in self.letters.upper():
            raise RewardError(
                f"the expected answer {episode.answer!r:.60} is none of {self.letters}",
                fix="set letters, or use ExactMatch",
            )
        return answer
