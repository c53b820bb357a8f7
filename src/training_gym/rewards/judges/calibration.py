"""How far a judge can be trusted: against answers that people have graded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from pydantic import Field

from training_gym.rewards.judges.judge import JudgeSettings
from training_gym.rewards.judges.sheet import PLEAS
from training_gym.spec.errors import RewardError
from training_gym.spec.settings import Settings


class Labelled(Settings):
    """An answer with the grade it deserves."""

    task: str
    answer: str
    grade: float = Field(ge=0, le=1)
    reference: str = ""


class Calibration(Settings):
    """What a judge made of labelled answers."""

    count: int
    """Answers that were judged."""
    missing: int
    """Answers without a grade: left out of everything below."""
    bias: float
    """Mean of grade given minus grade deserved: above 0 it is too kind."""
    error: float
    """Mean distance between the two."""
    rank_correlation: float | None
    """Spearman's ρ; None where either side has one grade only."""
    agreement: float
    """Share on the same side of one half."""
    swayed: float | None
    """Share of bad answers (below one half) that a plea for a better grade lifted over it."""


async def calibrate(judge: JudgeSettings, examples: Sequence[Labelled]) -> Calibration:
    """Judge labelled answers, each by itself, and bad ones once more with a plea behind them.

    Raises `RewardError` if none could be judged.
    """
    given = await _grades(judge, examples, "")
    pairs = [(g, e.grade) for g, e in zip(given, examples, strict=True) if g is not None]
    if not pairs:
        raise RewardError(
            f"none of {len(examples)} labelled answers could be judged",
            fix="check that the judge's endpoint answers, and its budget",
        )
    bad = [example for example in examples if example.grade < 0.5]
    pleading = await _grades(judge, bad, f"\n\n{PLEAS[0]}")
    lifted = [grade >= 0.5 for grade in pleading if grade is not None]
    return Calibration(
        count=len(pairs),
        missing=len(examples) - len(pairs),
        bias=math.fsum(got - deserved for got, deserved in pairs) / len(pairs),
        error=math.fsum(abs(got - deserved) for got, deserved in pairs) / len(pairs),
        rank_correlation=_spearman(pairs),
        agreement=sum((got >= 0.5) == (due >= 0.5) for got, due in pairs) / len(pairs),
        swayed=sum(lifted) / len(lifted) if lifted else None,
    )


async def _grades(
    judge: JudgeSettings, examples: Sequence[Labelled], plea: str
) -> list[float | None]:
    found = await asyncio.gather(
        *(judge.grade(e.task, e.reference, [e.answer + plea]) for e in examples)
    )
    return [None if grades is None else judge.score_of(grades).value for (grades,) in found]


def _spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's correlation of mid-ranks."""
    ranks = [_mid_ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    mean = (len(pairs) + 1) / 2
    one, other = ([rank - mean for rank in side] for side in ranks)
    spread = math.sqrt(math.fsum(a * a for a in one) * math.fsum(b * b for b in other))
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / spread if spread else None


def _mid_ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1 on; equal ones share the middle of their ranks."""
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in set(values)}
    count = {value: ordered.count(value) for value in first}
    return [first[value] + (count[value] + 1) / 2 for value in values]
