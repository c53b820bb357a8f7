"""What the index says of spans, logs, evaluations, and of what is new since a cursor."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from training_gym.records.index.episode_values import EpisodeRow
from training_gym.records.index.run_values import Figure, RecordRow, RunRow
from training_gym.records.index.series_values import require_interval
from training_gym.spec.settings import Settings

LogLevel = Literal["debug", "info", "warning", "error"]


class TimelineQuery(Settings):
    """Which spans; those that overlap the range count."""

    first_step: int | None = None
    """Batches, counted from 1, as `EpisodeRow.step` of training."""
    last_step: int | None = None
    start: float | None = None
    """Seconds since 1970."""
    stop: float | None = None
    lanes: tuple[str, ...] = ()
    limit: int = Field(5000, ge=1, le=100_000)

    @model_validator(mode="after")
    def _has_an_interval(self) -> Self:
        require_interval("first_step", self.first_step, "last_step", self.last_step)
        require_interval("start", self.start, "stop", self.stop)
        return self


class SpanRow(Settings):
    """How long something took, as measured."""

    id: int
    lane: str
    """`driver`, `trainer`, `engine`, `env`, `reward`, `sync`, or what the record says."""
    writer: str
    name: str
    start: float
    """Seconds since 1970, from the monotonic clock of the writer's host."""
    end: float | None
    """None: it is still open."""
    step: int | None
    attempt: int
    fields: dict[str, JsonValue]


class StepTime(Settings):
    """Where the time of one batch went."""

    step: int
    start: float
    end: float
    seconds: dict[str, float]
    """Seconds of each lane in which at least one of its spans was open; lanes may overlap."""
    idle_s: float
    """Seconds in which no span of `trainer` or `engine` was open."""
    blame: dict[str, float]
    """Those idle seconds by the lane that was busy meanwhile; `none` where nothing was."""


class Timeline(Settings):
    """Spans in a range, and what they amount to."""

    spans: tuple[SpanRow, ...]
    """By start."""
    omitted: int
    """Spans in the range left out because of the limit: the shortest ones."""
    lanes: tuple[str, ...]
    """Every lane of the run, in the order in which to draw them."""
    steps: tuple[StepTime, ...]
    """Only whole batches of the range."""
    start: float | None
    stop: float | None
    """The range that is covered; None: there are no spans."""


class LogQuery(Settings):
    """Which lines."""

    source: tuple[str, ...] = ()
    """`stdout`, `stderr`, a file's name …"""
    writer: tuple[str, ...] = ()
    level: LogLevel | None = None
    """This or worse."""
    regex: str = ""
    """Searched in each line, case counting for nothing; raises `RecordsError` if it is none."""
    step: int | None = Field(None, ge=0)
    """Only from where this batch began on."""
    since: float | None = None
    """Seconds since 1970."""
    cursor: str = ""
    """Of another page: older or newer lines, see `LogPage`."""
    limit: int = Field(200, ge=1, le=5000)


class LogLine(Settings):
    """A line some process wrote."""

    id: int
    time: float
    """Seconds since 1970."""
    writer: str
    source: str
    level: LogLevel
    """What the record says, else guessed from the line's beginning; `info` if nothing tells."""
    batch: int | None
    text: str
    """At most 65,536 characters."""
    cut: int
    """Characters left out."""


class LogPage(Settings):
    """Some lines, oldest first; without a cursor the newest ones."""

    lines: tuple[LogLine, ...]
    older: str
    """Cursor for the lines before; empty: there are none."""
    newer: str
    """Cursor for what comes after; it can be asked again and again."""
    complete: bool
    """False: a regex stopped early to stay quick; go on with the cursor."""
    sources: tuple[str, ...]
    """Every source of the run."""


class EvaluationRow(Settings):
    """One suite at one point of a run."""

    suite: str
    phase: str
    """`baseline`, `during` or `final`."""
    figure: Figure
    optimizer_step: int | None
    checkpoint: str
    """Folder of the checkpoint that was evaluated; empty: none was kept of this point."""
    episodes: int
    missing: int
    """Episodes without a score."""
    components: dict[str, float]
    difference: Figure | None
    """Paired difference to the suite's first evaluation, over tasks that both have; None for the
    first, or where they share no task."""
    time: float


class FlippedTask(Settings):
    """A task whose score went from one side of the threshold to the other."""

    task: str
    before: float
    after: float
    before_episodes: tuple[str, ...]
    after_episodes: tuple[str, ...]


class Flipped(Settings):
    """Tasks of a suite that flipped between two evaluations."""

    suite: str
    before_step: int
    after_step: int
    threshold: float
    """A task is solved if its mean score is at least this."""
    gained: tuple[FlippedTask, ...]
    lost: tuple[FlippedTask, ...]
    unchanged: int


class MetricRecord(Settings):
    """The values one metric record brought."""

    batch: int | None
    optimizer_step: int | None
    time: float
    tokens: float
    """Sampled tokens so far."""
    values: dict[str, float]


class Changes(Settings):
    """What is new in a run since a cursor; for one live stream."""

    run: RunRow
    reset: bool
    """The cursor no longer holds (the index was rebuilt, or a resume made records void): what was
    shown must be asked for anew, and this holds nothing but the row and a cursor."""
    metrics: tuple[MetricRecord, ...] = ()
    episodes: tuple[EpisodeRow, ...] = ()
    spans: tuple[SpanRow, ...] = ()
    events: tuple[RecordRow, ...] = ()
    alerts: tuple[RecordRow, ...] = ()
    evaluations: tuple[RecordRow, ...] = ()
    annotations: tuple[RecordRow, ...] = ()
    num_logs: int = 0
    """New lines; ask for them with `logs`."""
    more: bool = False
    """The limit left something out: ask again at once."""
    cursor: str
