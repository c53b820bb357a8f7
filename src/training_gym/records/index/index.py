"""`Index`: every question a view asks of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from training_gym.records.index.episode_values import (
    EpisodeDetail,
    EpisodePage,
    EpisodeQuery,
    GroupRow,
    GroupView,
    Histogram,
    StepRow,
)
from training_gym.records.index.run_values import (
    Comparison,
    ConfigDifference,
    Overview,
    RecordPage,
    RunPage,
    RunQuery,
)
from training_gym.records.index.series_values import MetricName, Series, SeriesQuery
from training_gym.records.index.stream_values import (
    Changes,
    EvaluationRow,
    Flipped,
    LogPage,
    LogQuery,
    Timeline,
    TimelineQuery,
)


class Index(Protocol):
    """Answers from a cache that it brings up to date before each answer.

    Any number of threads and processes may share one cache. Every method reads what was written to
    the run's files before it was called, raises `RecordsError` for an unknown run, and hides what
    a resume made void unless it says otherwise. `Index(runs, cache)` or `Index.default()` open one.
    """

    def __init__(self, runs: Path, cache: Path) -> None:
        """Index the runs in the folder `runs`; `cache` may be deleted at any time."""

    @classmethod
    def default(cls) -> Index:
        """Of `$TRAINING_GYM_HOME`: its runs, and `cache/index`."""
        ...

    def close(self) -> None:
        """Close the databases; the index opens them again when asked."""

    def refresh(self, run_id: str) -> None:
        """Take in what was written since; every question about the run does this by itself."""

    def runs(self, query: RunQuery | None = None) -> RunPage:
        """The runs that match (None: the newest 100)."""
        ...

    def overview(self, run_id: str) -> Overview:
        """One run."""
        ...

    def config_difference(self, before: str, after: str) -> ConfigDifference:
        """How run `after` differs from run `before`: definition, source, environment."""
        ...

    def compare(self, run_ids: Sequence[str], metrics: Sequence[str] = ()) -> Comparison:
        """At most 50 runs beside each other; without `metrics`, by the headline ones they share."""
        ...

    def metric_names(self, run_id: str) -> tuple[MetricName, ...]:
        """Every metric of a run, by name."""
        ...

    def series(self, run_ids: Sequence[str], query: SeriesQuery) -> tuple[Series, ...]:
        """Curves by run, then name; a run without a metric has no curve of it."""
        ...

    def episodes(self, run_id: str, query: EpisodeQuery | None = None) -> EpisodePage:
        """A page of the episodes that match (None: the newest 50)."""
        ...

    def episode(self, run_id: str, episode_id: str, *, tokens: bool = True) -> EpisodeDetail:
        """One episode, the newest of this id; without `tokens` it has no trajectories.

        Raises `RecordsError` for an unknown episode. Damaged columns are a `problem`, not an error.
        """
        ...

    def discarded(self, run_id: str, query: EpisodeQuery | None = None) -> EpisodePage:
        """`episodes` with `discarded` set."""
        ...

    def groups(self, run_id: str, step: int, stream: str = "train") -> tuple[GroupRow, ...]:
        """The groups of one step, by mean reward, the best first."""
        ...

    def group(self, run_id: str, group: str) -> GroupView:
        """One group side by side; raises `RecordsError` for an unknown one."""
        ...

    def steps(
        self, run_id: str, first: int | None = None, last: int | None = None
    ) -> tuple[StepRow, ...]:
        """The training episodes of each batch summed up, oldest first."""
        ...

    def histogram(
        self,
        run_id: str,
        query: EpisodeQuery | None = None,
        *,
        of: str = "reward",
        bins: int = 20,
    ) -> Histogram:
        """How the episodes that match are spread over `of`.

        `of` is `reward`, `length`, `duration`, `staleness` or a component's name. Conditions on
        `text` and `error` are not taken: raises `RecordsError`.
        """
        ...

    def timeline(self, run_id: str, query: TimelineQuery | None = None) -> Timeline:
        """Measured spans (None: the last ten batches)."""
        ...

    def logs(self, run_id: str, query: LogQuery | None = None) -> LogPage:
        """A page of lines (None: the newest 200)."""
        ...

    def events(
        self, run_id: str, *, kinds: Sequence[str] = (), cursor: str = "", limit: int = 500
    ) -> RecordPage:
        """What happened, oldest first; `kinds`: only these."""
        ...

    def alerts(self, run_id: str, *, cursor: str = "", limit: int = 500) -> RecordPage:
        """Records of the `alerts` stream as written; `records.health` makes alerts of them."""
        ...

    def annotations(self, run_id: str, *, cursor: str = "", limit: int = 500) -> RecordPage:
        """Notes, tags and acknowledgements as written."""
        ...

    def evaluations(self, run_id: str) -> tuple[EvaluationRow, ...]:
        """Every evaluation, by suite, then step."""
        ...

    def flipped(
        self, run_id: str, suite: str, before_step: int, after_step: int, threshold: float = 0.5
    ) -> Flipped:
        """Tasks that one evaluation of a suite solved and another did not.

        Steps are those of `EvaluationRow.figure`. Raises `RecordsError` for an unknown one.
        """
        ...

    def changes(self, run_id: str, cursor: str = "", *, limit: int = 1000) -> Changes:
        """What is new since `cursor`, at most `limit` records of each kind.

        Without a cursor: nothing but the row and the cursor to begin with.
        """
        ...
