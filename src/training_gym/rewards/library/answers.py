"""Finding the answer in a completion, and the expected one in a task; linear in the text."""

from __future__ import annotations

import re

from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError

_BOX_TOKEN = re.compile(r"\\f?boxed\s{0,8}\{|\\.|[{}]", re.DOTALL)


def expected(episode: Episode) -> str:
    """The task's answer as text; raises `RewardError` if the task has none."""
    answer = episode.answer
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        shown = "no answer" if answer is None else f"the answer {answer!r:.60}"
        raise RewardError(
            f"the task has {shown}, and this scorer compares with text or a number",
            fix="set output_column of the dataset to the column with the expected answer",
        )
    return str(answer)


def last_boxed(text: str) -> str | None:
    r"""What stands in the last complete `\boxed{…}` (or `\fbox`), or None."""
    open_at: list[tuple[int, int]] = []
    found: tuple[int, int, int] | None = None
    for token in _BOX_TOKEN.finditer(text):
        kind = token[0]
        if kind == "{":
            open_at.append((-1, token.end()))
        elif kind == "}":
            start, content = open_at.pop() if open_at else (-1, -1)
            if start >= 0 and (found is None or start > found[0]):
                found = (start, content, token.start())
        elif kind.endswith("{") and len(kind) > 2:
            open_at.append((token.start(), token.end()))
    return None if found is None else text[found[1] : found[2]].strip()


def after_last(text: str, marker: str | None) -> str:
    """What follows the last `marker`; all of the text without one."""
    return text if not marker else text.rpartition(marker)[2]


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern, which must take linear time."""
    last = None
    for match in pattern.finditer(text):
        last = match
    return last
