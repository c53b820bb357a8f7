"""The eight charts of a run's first page, as far as the run has what they show."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from training_gym.spec.settings import Settings


class ChartSpec(Settings):
    """A chart: which metrics it shows and how."""

    key: str
    title: str = Field(min_length=1, max_length=120)
    metrics: tuple[str, ...] = Field(min_length=1, max_length=40)
    """Names, or patterns with one `*`."""
    kind: Literal["line", "stack"] = "line"
    unit: Literal["", "share", "s"] = ""
    """`share`: 0 to 1, shown in per cent; `s`: seconds."""
    why: str = ""
    """What to say where the run has none of them."""


_UNRECORDED = "This run's engine does not record it."

OVERVIEW: tuple[ChartSpec, ...] = (
    ChartSpec(key="reward", title="Reward", metrics=("reward_mean", "loss"), why="No step yet."),
    ChartSpec(
        key="evaluation",
        title="Evaluation",
        metrics=("eval/*",),
        why="No evaluation runs between steps; see Evaluations for baseline and end.",
    ),
    ChartSpec(key="entropy", title="Entropy", metrics=("entropy",), why=_UNRECORDED),
    ChartSpec(
        key="kl",
        title="KL",
        metrics=("kl_to_reference", "kl_to_sampler", "kl"),
        why=_UNRECORDED,
    ),
    ChartSpec(
        key="mismatch",
        title="Mismatch of sampler and trainer",
        metrics=("mismatch_mean", "mismatch_max"),
        why=_UNRECORDED,
    ),
    ChartSpec(
        key="truncated",
        title="Answers: length and truncation",
        metrics=("response_tokens_mean", "response_tokens_max"),
        why=_UNRECORDED,
    ),
    ChartSpec(key="grad_norm", title="Gradient norm", metrics=("grad_norm",), why=_UNRECORDED),
    ChartSpec(
        key="step_time",
        title="Time of a step",
        metrics=("rollout_seconds", "reward_seconds", "train_seconds", "sync_seconds"),
        kind="stack",
        unit="s",
        why=_UNRECORDED,
    ),
)


def charts_of(names: Collection[str]) -> tuple[ChartSpec, ...]:
    """The eight charts with the metrics the run has; one that has none keeps its own.

    `Reward` shows the first of its alternatives only: a loss is no reward.
    """
    return tuple(_of(chart, names) for chart in OVERVIEW)


def _of(chart: ChartSpec, names: Collection[str]) -> ChartSpec:
    found = [m for m in chart.metrics if any(fnmatchcase(name, m) for name in names)]
    if chart.key == "reward":
        found = found[:1]
        if found == ["loss"]:
            return chart.changed(title="Loss", metrics=("loss",))
    if chart.key == "truncated" and "truncated_share" in names and not found:
        return chart.changed(metrics=("truncated_share",), unit="share")
    return chart.changed(metrics=tuple(found)) if found else chart
