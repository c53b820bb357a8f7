"""`Index`: every question a view asks of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from training_gym.records.index import (
    changes,
    curves,
    episode_detail,
    episode_pages,
    evaluations,
    log_pages,
    run_lists,
    steps,
    timeline,
)
from training_gym.records.index.catalogue import Catalogue
from training_gym.records.index.comparing import compared, require_comparable
from training_gym.records.index.differences import config_difference, differing
from training_gym.records.index.episode_pages import NewestRecords
from training_gym.records.index.episode_rows import Policy
from training_gym.records.index.episode_values import (
    EpisodeDetail,
    EpisodePage,
    EpisodeQuery,
    GroupRow,
    GroupView,
    Histogram,
    StepRow,
)
from training_gym.records.index.housing import index_folder
from training_gym.records.index.overview import overview
from training_gym.records.index.run_values import (
    ComparedRun,
    Comparison,
    ConfigDifference,
    Overview,
    RecordPage,
    RunPage,
    RunQuery,
    RunRow,
)
from training_gym.records.index.series_values import MetricName, Series, SeriesQuery
from training_gym.records.index.standing import ACTIVE, Documents, row_of
from training_gym.records.index.store import RunStores
from training_gym.records.index.stream_values import (
    Changes,
    EvaluationRow,
    Flipped,
    LogPage,
    LogQuery,
    Timeline,
    TimelineQuery,
)
from training_gym.records.index.tailing import bring_up_to_date, indexable
from training_gym.records.run_directory import RunDirectory, existing_run
from training_gym.spec.errors import RecordsError
from training_gym.spec.home import runs_directory

T = TypeVar("T")


class Index:
    """Answers from a cache that it brings up to date before each answer.

    Any number of threads and processes may share one cache. Every method reads what was written to
    the run's files before it was called, raises `RecordsError` for an unknown run, and hides what
    a resume made void unless it says otherwise. `Index(runs, cache)` or `Index.default()` open one.
    """

    def __init__(self, runs: Path, cache: Path) -> None:
        """Index the runs in the folder `runs`; `cache` may be deleted at any time."""
        self.folder = runs
        self._catalogue = Catalogue(runs, cache / "runs.sqlite")
        self._stores = RunStores(cache / "runs")
        self._policies: dict[str, Policy] = {}

    @classmethod
    def default(cls) -> Index:
        """Of `$TRAINING_GYM_HOME`; where its cache cannot be written, it goes with this process."""
        return cls(runs_directory(), index_folder())

    def close(self) -> None:
        """Close the databases; the index opens them again when asked."""
        self._stores.close()

    def refresh(self, run_id: str) -> None:
        """Take in what was written since; every question about the run does this by itself."""
        self._ask(run_id, lambda _: None)

    def runs(self, query: RunQuery | None = None) -> RunPage:
        """The runs that match (None: the newest 100)."""
        rows = self._catalogue.rows(lambda run: row_of(self._documents(run), None), self._row)
        return run_lists.page_of(rows, query or RunQuery())

    def overview(self, run_id: str) -> Overview:
        """One run."""
        documents = self._documents(run_id)
        documents.require_readable()
        return self._ask(run_id, lambda c: overview(documents, c, row_of(documents, c)))

    def config_difference(self, before: str, after: str) -> ConfigDifference:
        """How run `after` differs from run `before`: definition, source, environment."""
        return config_difference(self._run(before), self._run(after))

    def compare(self, run_ids: Sequence[str], metrics: Sequence[str] = ()) -> Comparison:
        """At most 50 runs beside each other; without `metrics`, by the headline ones they share."""
        require_comparable(run_ids)
        apart, settings = differing([self._run(run_id).manifest.run for run_id in run_ids])
        names = tuple(metrics) or self._shared_headline(run_ids)
        return Comparison(
            runs=tuple(
                self._compared(run_id, names, values)
                for run_id, values in zip(run_ids, settings, strict=True)
            ),
            metrics=names,
            differing=apart,
        )

    def metric_names(self, run_id: str) -> tuple[MetricName, ...]:
        """Every metric of a run, by name."""
        return self._ask(run_id, curves.metric_names)

    def series(self, run_ids: Sequence[str], query: SeriesQuery) -> tuple[Series, ...]:
        """Curves by run, then name; a run without a metric has no curve of it."""
        return tuple(
            found
            for run_id in run_ids
            for found in self._ask(run_id, lambda c, r=run_id: curves.curves(c, r, query))  # type: ignore[misc]
        )

    def episodes(self, run_id: str, query: EpisodeQuery | None = None) -> EpisodePage:
        """A page of the episodes that match (None: the newest 50)."""
        run, policy = self._run(run_id), self._policy(run_id)
        asked = query or EpisodeQuery()
        return self._ask(run_id, lambda c: episode_pages.page(run, c, asked, policy))

    def newest_episode_records(
        self, run_id: str, stream: str | None = None, *, limit: int = 5
    ) -> NewestRecords:
        """The newest records of episodes as they were written, oldest first.

        `stream`: `train`, or the name of an evaluation.
        """
        run = self._run(run_id)
        return self._ask(run_id, lambda c: episode_pages.newest_records(run, c, stream, limit))

    def episode(self, run_id: str, episode_id: str, *, tokens: bool = True) -> EpisodeDetail:
        """One episode, the newest of this id; without `tokens` it has no trajectories.

        Raises `RecordsError` for an unknown episode. Damaged columns are a `problem`, not an error.
        """
        run, policy = self._run(run_id), self._policy(run_id)
        detail = episode_detail.detail
        return self._ask(run_id, lambda c: detail(run, c, episode_id, policy, tokens=tokens))

    def groups(self, run_id: str, step: int, stream: str = "train") -> tuple[GroupRow, ...]:
        """The groups of one step, by mean reward, the best first."""
        run, policy = self._run(run_id), self._policy(run_id)
        return self._ask(run_id, lambda c: episode_detail.groups(run, c, step, stream, policy))

    def group(self, run_id: str, group: str) -> GroupView:
        """One group side by side; raises `RecordsError` for an unknown one."""
        run, policy = self._run(run_id), self._policy(run_id)
        return self._ask(run_id, lambda c: episode_detail.group(run, c, group, policy))

    def steps(
        self, run_id: str, first: int | None = None, last: int | None = None
    ) -> tuple[StepRow, ...]:
        """The training episodes of each batch summed up, oldest first."""
        return self._ask(run_id, lambda c: steps.steps(c, first, last))

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
        policy, asked = self._policy(run_id), query or EpisodeQuery()
        return self._ask(run_id, lambda c: steps.histogram(c, asked, policy, of, bins))

    def timeline(self, run_id: str, query: TimelineQuery | None = None) -> Timeline:
        """Measured spans (None: the last ten batches)."""
        run = self._run(run_id)
        running = Documents.read(run).status in ACTIVE
        return self._ask(run_id, lambda c: timeline.timeline(run, c, query, running))

    def logs(self, run_id: str, query: LogQuery | None = None) -> LogPage:
        """A page of lines (None: the newest 200)."""
        run, asked = self._run(run_id), query or LogQuery()
        return self._ask(run_id, lambda c: log_pages.page(run, c, asked))

    def events(
        self, run_id: str, *, kinds: Sequence[str] = (), cursor: str = "", limit: int = 500
    ) -> RecordPage:
        """What happened, oldest first; `kinds`: only these."""
        return self._records(run_id, "events", cursor, limit, tuple(kinds))

    def alerts(self, run_id: str, *, cursor: str = "", limit: int = 500) -> RecordPage:
        """Records of the `alerts` stream as written; `records.health` makes alerts of them."""
        return self._records(run_id, "alerts", cursor, limit)

    def annotations(self, run_id: str, *, cursor: str = "", limit: int = 500) -> RecordPage:
        """Notes, tags and acknowledgements as written."""
        return self._records(run_id, "annotations", cursor, limit)

    def evaluations(self, run_id: str) -> tuple[EvaluationRow, ...]:
        """Every evaluation, by suite, then step."""
        run = self._run(run_id)
        return self._ask(run_id, lambda c: evaluations.evaluations(run, c))

    def flipped(
        self, run_id: str, suite: str, before_step: int, after_step: int, threshold: float = 0.5
    ) -> Flipped:
        """Tasks that one evaluation of a suite solved and another did not.

        Steps are those of `EvaluationRow.figure`. Raises `RecordsError` for an unknown one.
        """
        run = self._run(run_id)
        asked = (suite, before_step, after_step, threshold)
        return self._ask(run_id, lambda c: evaluations.flipped(run, c, *asked))

    def changes(self, run_id: str, cursor: str | float = "", *, limit: int = 1000) -> Changes:
        """What is new since `cursor`, or since a moment; at most `limit` records of each kind.

        Without either: nothing but the row and the cursor to begin with.
        """
        run, policy = self._run(run_id), self._policy(run_id)
        documents = Documents.read(run)
        return self._ask(
            run_id,
            lambda c: changes.changes(run, c, row_of(documents, c), policy, cursor, limit),
        )

    def _ask(self, run_id: str, question: Callable[[sqlite3.Connection], T]) -> T:
        """Bring the run's database up to date and answer from one consistent state of it."""
        store = self._stores.of(self._run(run_id))

        def answer(connection: sqlite3.Connection) -> T:
            with indexable(store.run):
                bring_up_to_date(store.run, connection)
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("COMMIT")

        return store.ask(answer)

    def _run(self, run_id: str) -> RunDirectory:
        return existing_run(self.folder, run_id)

    def _documents(self, run_id: str) -> Documents:
        return Documents.read(self._run(run_id))

    def _policy(self, run_id: str) -> Policy:
        if run_id not in self._policies:
            self._policies[run_id] = Policy.of(dict(self._documents(run_id).manifest))
        return self._policies[run_id]

    def _row(self, run_id: str) -> RunRow:
        documents = self._documents(run_id)
        if documents.problem:
            return row_of(documents, None)
        try:
            return self._ask(run_id, lambda connection: row_of(documents, connection))
        except RecordsError as error:
            return row_of(Documents(documents.run, {}, "failed", error.message), None)

    def _records(
        self, run_id: str, stream: str, cursor: str, limit: int, kinds: tuple[str, ...] = ()
    ) -> RecordPage:
        return self._ask(run_id, lambda c: changes.record_page(c, stream, cursor, limit, kinds))

    def _shared_headline(self, run_ids: Sequence[str]) -> tuple[str, ...]:
        found = [self._ask(run_id, curves.headline_names) for run_id in run_ids]
        return tuple(name for name in found[0] if all(name in other for other in found[1:]))

    def _compared(
        self, run_id: str, names: tuple[str, ...], settings: dict[str, JsonValue]
    ) -> ComparedRun:
        documents = self._documents(run_id)
        documents.require_readable()
        return self._ask(run_id, lambda c: compared(c, row_of(documents, c), names, settings))
