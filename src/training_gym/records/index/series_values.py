"""What the index says of metrics: names, and curves reduced to what a screen can show."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from training_gym.spec.errors import SpecError
from training_gym.spec.settings import Settings

Axis = Literal["step", "batch", "tokens", "time", "cost"]
"""`step`: optimizer steps. `batch`: batches learned from. `tokens`: sampled tokens so far.
`time`: seconds of training, the pauses between attempts left out. `cost`: the newest value of the
metric `cost`, what was spent so far; runs without it have no curves over it."""


def require_interval(first: str, low: float | None, last: str, high: float | None) -> None:
    """Raise `SpecError` where nothing lies from `low` to `high`; None: open on that side."""
    for name, end in ((first, low), (last, high)):
        if end is not None and math.isnan(end):
            raise SpecError(f"{name} = nan is no bound", fix="give a number")
    if low is not None and high is not None and low > high:
        raise SpecError(
            f"nothing lies between {first} = {low:g} and {last} = {high:g}",
            fix=f"give {first} <= {last}",
        )


class MetricName(Settings):
    """A metric that a run has recorded."""

    name: str
    count: int
    """Points, hidden ones included."""
    last: float | None
    """Newest value that shows; NaN and infinities as they are."""
    last_batch: int | None


class SeriesQuery(Settings):
    """Which part of which curves, and how fine."""

    names: tuple[str, ...] = Field(min_length=1, max_length=500)
    """Names, or patterns with `*` and `?`."""
    x: Axis = "batch"
    start: float | None = Field(None, allow_inf_nan=False)
    """Only points with x >= start."""
    stop: float | None = Field(None, allow_inf_nan=False)
    """Only points with x <= stop."""
    max_points: int = Field(1500, ge=2, le=100_000)
    """For each curve."""

    @model_validator(mode="after")
    def _has_an_interval(self) -> Self:
        require_interval("start", self.start, "stop", self.stop)
        return self


class Series(Settings):
    """One curve. All sequences have the same length; x never decreases.

    Where there are at most `max_points` points, these are the points. Otherwise neighbours are
    merged: `low` and `high` are the extremes of what was merged, so no spike is lost, and `mean`
    is the mean of its finite values. NaN: nothing finite was merged.
    """

    run_id: str
    name: str
    axis: Axis
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None
    """None: no points were merged, and `mean` holds the values themselves."""
    high: tuple[float, ...] | None
    batch: tuple[int, ...]
    """Batch of each point (of a merged one: its last), to go from a curve to its episodes;
    -1 where none is known."""
    count: int
    """Points in the asked range before merging."""
