"""Mathematical equality, by `math-verify` (Kydlíček, Hugging Face)."""

from __future__ import annotations

import functools
import logging
import re
from types import ModuleType
from typing import Any

from pydantic import Field

from training_gym.rewards.library.answers import expected, last_boxed
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.settings import Settings

_DEEPEST = 8
"""Brackets within brackets; the parser's time doubles with each."""

_EXPLOSIVE = re.compile(
    r"\^\s*\{?\s*[^\s{}+*/-]{0,12}\s*\^"  # a power in an exponent
    r"|\^\s*\{?\s*-?\d{4}"  # an exponent of a thousand and more
    r"|\d{4}\s*\)?\s*!"  # the factorial of a thousand and more
    r"|!\s*!"
    r"|(?:binom|choose)\D{0,4}\d{4}"
)
"""What would be computed for ages, and no sane answer to a question with a short one."""


class BoxedMath(Settings):
    r"""1 if the last `\boxed{…}` equals the answer mathematically, else 0 (math-verify)."""

    longest: int = Field(300, ge=1)
    """Boxes with more characters are wrong unless they are the answer to the letter."""

    def __call__(self, episode: Episode) -> float:
        """Compare the completion's last box with the task's answer."""
        gold = _gold(expected(episode))
        given = last_boxed(episode.completion)
        if not given:
            return 0.0
        if _squeezed(given) == _squeezed(gold):
            return 1.0
        if len(given) > self.longest or _depth(given) > _DEEPEST or _EXPLOSIVE.search(given):
            return 0.0
        return float(_are_equal(gold, given))


def _gold(answer: str) -> str:
    """The expected answer without the working around it: a box, or what follows `####`."""
    boxed = last_boxed(answer)
    return boxed if boxed is not None else answer.rpartition("####")[2].strip()


def _squeezed(text: str) -> str:
    return "".join(text.split()).strip("$")


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _are_equal(gold: str, given: str) -> bool:
    library = _library()
    # No timeouts of its own: they need signals in the main thread. The worker's timeout holds.
    parsed = library.parse(_in_box(given), parsing_timeout=None)
    return bool(library.verify(list(_parsed_gold(gold)), parsed, timeout_seconds=None))


@functools.lru_cache(maxsize=4096)
def _parsed_gold(gold: str) -> tuple[Any, ...]:
    parsed = tuple(_library().parse(_in_box(gold), parsing_timeout=None))
    if not parsed:
        raise RewardError(
            f"the expected answer {gold!r:.60} is no mathematics",
            fix="use ExactMatch for answers in words, or mend the answer",
        )
    return parsed


def _in_box(text: str) -> str:
    return f"\\boxed{{{text}}}"


@functools.cache
def _library() -> ModuleType:
    try:
        import math_verify
    except ImportError:
        raise RewardError(
            "BoxedMath needs math-verify, which is not installed",
            fix="pip install 'training-gym[math]'",
        ) from None
    # It warns at every call that its timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    module: ModuleType = math_verify
    return module
