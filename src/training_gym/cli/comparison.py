"""Before and after: what an evaluation's episodes say about whether a model got better.

A model improved if the 95 % interval of the paired difference lies above zero and its verses are
no less varied than before: a reward that is satisfied by saying one thing over and over is a leak.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_gym.spec.errors import RecordsError

if TYPE_CHECKING:
    from training_gym.runs import Run
    from training_gym.spec.episodes import Episode


@dataclass(frozen=True)
class Pair:
    """One held-out task, answered before and after."""

    task: str
    prompt: str
    answer: str
    before: str
    after: str
    reward_before: float | None
    reward_after: float | None


@dataclass(frozen=True)
class Comparison:
    """An evaluation before the first step against the same after the last."""

    evaluation: str
    pairs: tuple[Pair, ...]
    baseline_mean: float
    trained_mean: float
    difference_low: float
    difference_high: float
    baseline_distinctness: float
    trained_distinctness: float

    @property
    def better(self) -> bool:
        """Whether the reward rose beyond what chance explains."""
        return self.difference_low > 0

    @property
    def varied(self) -> bool:
        """Whether the answers are at least as varied as before."""
        return self.trained_distinctness >= self.baseline_distinctness

    @property
    def verdict(self) -> str:
        """`improved`, `less_varied`, `worse` or `no_difference`."""
        if self.better:
            return "improved" if self.varied else "less_varied"
        return "worse" if self.difference_high < 0 else "no_difference"


def compare(run: Run, evaluation: str) -> Comparison:
    """Compare the first and the last evaluation of that name; raises `RecordsError`."""
    found = _figures(run, evaluation)
    pairs = pair_up(run.episodes(stream=f"eval:{evaluation}"))
    before, after = distinctness([(pair.before, pair.after) for pair in pairs])
    return Comparison(
        evaluation=evaluation,
        pairs=pairs,
        baseline_mean=found["baseline"]["mean"],
        trained_mean=found["final"]["mean"],
        difference_low=found["difference"]["low"],
        difference_high=found["difference"]["high"],
        baseline_distinctness=before,
        trained_distinctness=after,
    )


def pair_up(episodes: Sequence[Episode]) -> tuple[Pair, ...]:
    """Each task's answers at the first and at the last evaluation, in the order they were asked."""
    batches = [episode.counters.batch or 0 for episode in episodes]
    if not batches or min(batches) == max(batches):
        return ()
    first = {_place(e): e for e, n in zip(episodes, batches, strict=True) if n == min(batches)}
    last = {_place(e): e for e, n in zip(episodes, batches, strict=True) if n == max(batches)}
    return tuple(_pair(first[place], last[place]) for place in first if place in last)


def distinctness(texts: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Share of different words among all words, before and after.

    Longer texts repeat more, so each pair is compared over as many words as its shorter text has.
    """
    before: list[str] = []
    after: list[str] = []
    for pair in texts:
        old, new = (re.findall(r"[^\W\d_]+(?:'\w+)?", text.lower()) for text in pair)
        length = min(len(old), len(new))
        before += old[:length]
        after += new[:length]
    return _share_of_different(before), _share_of_different(after)


def _share_of_different(words: Sequence[str]) -> float:
    return len(set(words)) / len(words) if words else 0.0


def _place(episode: Episode) -> tuple[str, int]:
    return episode.task.id, episode.member


def _pair(before: Episode, after: Episode) -> Pair:
    return Pair(
        task=before.task.id,
        prompt=before.task.prompt_text,
        answer=str(before.answer),
        before=before.completion,
        after=after.completion,
        reward_before=before.score.value if before.score else None,
        reward_after=after.score.value if after.score else None,
    )


def _figures(run: Run, evaluation: str) -> Any:
    """One evaluation's `baseline`, `final` and `difference`, as the run's result has them."""
    evaluations = run.result.details.get("evaluations") if run.result else None
    found = evaluations.get(evaluation) if isinstance(evaluations, dict) else None
    if found is None:
        raise RecordsError(
            f"run {run.id} has no result of the evaluation {evaluation!r}",
            fix=f"see training-gym logs {run.id}",
        )
    return found
