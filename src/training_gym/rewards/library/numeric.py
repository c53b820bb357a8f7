"""Numbers in text: thousands separators, decimals, exponents, fractions."""

from __future__ import annotations

import re
from fractions import Fraction

from pydantic import Field

from training_gym.rewards.library.answers import after_last, expected, last_match
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.settings import Settings

_LONGEST = 300
"""Digits of a number that is still taken for one."""

# Groups of thousands are bounded, or a list of them would be read once from every place in it.
_PLAIN = r"(?:\d{1,3}(?:,\d{3}){1,40}(?![\d,])|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}])[-+−])? ?\$?"
    rf"(?:\\[dt]?frac\{{(?P<top>-?{_PLAIN})\}}\{{(?P<bottom>{_PLAIN})\}}"
    rf"|(?P<number>{_PLAIN})(?P<exponent>[eE][-+]?\d{{1,3}}(?!\d))?"
    rf"(?: ?/ ?(?P<over>{_PLAIN}))?)"
)


class NumericMatch(Settings):
    """1 if the last number in the completion is the answer within a tolerance, else 0."""

    tolerance: float = Field(1e-6, ge=0, allow_inf_nan=False)
    """Largest absolute difference."""
    relative_tolerance: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Largest difference as a share of the answer."""
    after: str | None = None
    """Look only behind the last occurrence of this text, such as `Answer:`."""

    def __call__(self, episode: Episode) -> float:
        """Compare the completion's last number with the task's answer."""
        gold = last_number(expected(episode))
        if gold is None:
            raise RewardError(
                f"the expected answer {episode.answer!r:.60} has no number in it",
                fix="use ExactMatch for answers in words, or mend the answer",
            )
        given = last_number(after_last(episode.completion, self.after))
        if given is None:
            return 0.0
        allowed = max(Fraction(self.tolerance), Fraction(self.relative_tolerance) * abs(gold))
        return float(abs(given - gold) <= allowed)


def last_number(text: str) -> Fraction | None:
    r"""The last number of a text: `-1,234.5`, `3/4`, `\frac{3}{4}`, `1e-3`, `$7`; None without."""
    last = last_match(_NUMBER, text)
    return None if last is None else _value(last)


def _value(found: re.Match[str]) -> Fraction | None:
    if len(found[0]) > _LONGEST:
        return None
    sign = -1 if found["sign"] in ("-", "−") else 1
    if found["top"] is not None:
        return _ratio(sign * _plain(found["top"]), _plain(found["bottom"]))
    value = _plain(found["number"])
    if found["exponent"]:
        power = int(found["exponent"][1:])
        value *= Fraction(10) ** power
    if found["over"] is not None:
        return _ratio(sign * value, _plain(found["over"]))
    return sign * value


def _plain(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def _ratio(top: Fraction, bottom: Fraction) -> Fraction | None:
    return top / bottom if bottom else None
