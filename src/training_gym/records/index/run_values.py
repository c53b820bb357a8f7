"""What the index says of runs: rows of a list, an overview, differences between runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from training_gym.spec.settings import Settings

Status = Literal["queued", "running", "completed", "stopped", "failed", "lost"]
Level = Literal["healthy", "too_early", "degraded", "critical"]
RunOrder = Literal["created", "name", "status", "step", "reward", "heartbeat"]


class RunQuery(Settings):
    """Which runs to list; every condition that is given must hold."""

    status: tuple[Status, ...] = ()
    level: tuple[Level, ...] = ()
    tags: tuple[str, ...] = ()
    """All of them, from the manifest or given since."""
    model: str | None = None
    """Part of the model's name, upper and lower case alike."""
    text: str = ""
    """Part of id, name, model or a tag, upper and lower case alike."""
    order: RunOrder = "created"
    descending: bool = True
    offset: int = Field(0, ge=0)
    limit: int = Field(100, ge=1, le=10_000)


class Note(Settings):
    """What somebody wrote on a run: a record of its `annotations`."""

    id: str
    time: float
    """Seconds since 1970."""
    by: str
    text: str


class Figure(Settings):
    """A mean with its 95 % interval."""

    name: str
    mean: float
    low: float
    high: float
    count: int
    """Tasks it rests on."""
    step: int
    """Batches learned from when it was measured; 0: before training."""


class RunRow(Settings):
    """A run in a list. Times are seconds since 1970."""

    run_id: str
    path: str
    """The run's folder."""
    name: str | None
    model: str
    tags: tuple[str, ...]
    """Those of the manifest, then those added, without those removed."""
    status: Status
    problem: str = ""
    """Why the run's files could not be read; then only id, path and status hold."""
    level: Level
    verdict: str
    """The verdict in one sentence."""
    phase: str
    """What it is doing or last did, such as `train`, `rollout`, `evaluation`; empty: unknown."""
    created_at: float
    updated_at: float
    """When its newest record was made; the creation's time where there is none."""
    heartbeat_at: float | None
    heartbeat_age_s: float | None
    """Seconds since the last heartbeat, of a run that has not ended; else None."""
    attempt: int
    """Number of the newest attempt; 0: none."""
    step: int
    """Batches learned from."""
    num_steps: int | None
    """Batches it is to learn from."""
    reward: float | None
    """`reward_mean` (imitation: `loss`) of the newest batch."""
    reward_name: str
    """The metric that `reward` and `sparkline` show."""
    sparkline: tuple[float, ...]
    """At most 32 values of that metric over the whole run, oldest first."""
    evaluation: Figure | None
    """The newest evaluation of the first suite."""
    accelerator_busy: float | None
    """Share of the newest batches' time in which something was sampled or trained, 0 to 1."""
    cost: float | None
    """What it has cost so far, in the currency of the price; None: no price is known."""
    wall_s: float
    """Seconds over all attempts, the running one up to its newest record."""
    num_notes: int
    indexed: bool = True
    """False: so far only manifest and result were read; step, reward, curve and alerts follow."""
    version: str
    """Changes whenever anything above but ages does."""


class RunPage(Settings):
    """Some of the runs that match."""

    runs: tuple[RunRow, ...]
    total: int
    """Runs that match."""
    tags: tuple[str, ...]
    """Every tag of every run, for filters."""
    pending: int
    """Runs that are not `indexed` yet; each listing reads some more of them."""


class AttemptRow(Settings):
    """One try at a run."""

    attempt: int
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    reason: str
    resumed_from: int | None
    """Optimizer step of the checkpoint it started from; None: from nothing, or unknown."""


class CheckpointRow(Settings):
    """A finished checkpoint."""

    step: int
    """Optimizer steps before it."""
    batch: int | None
    kind: str
    created_at: float
    path: str
    size_bytes: int
    sha256: str


class RecordRow(Settings):
    """Any record: the envelope, and the stream's own fields."""

    id: int
    """Grows with the order in which the index found records of this stream."""
    writer: str
    attempt: int
    seq: int
    time: float
    """Seconds since 1970."""
    batch: int | None
    optimizer_step: int | None
    policy_version: int | None
    fields: dict[str, JsonValue]


class RecordPage(Settings):
    """Some records, oldest first."""

    records: tuple[RecordRow, ...]
    cursor: str
    """Pass as `cursor` for what comes after."""
    more: bool
    """Whether there is more already."""


class Overview(Settings):
    """One run with what its first page shows."""

    row: RunRow
    manifest: dict[str, JsonValue]
    plan: dict[str, JsonValue] | None
    environment: dict[str, JsonValue] | None
    result: dict[str, JsonValue] | None
    attempts: tuple[AttemptRow, ...]
    checkpoints: tuple[CheckpointRow, ...]
    notes: tuple[Note, ...]
    metrics: tuple[str, ...]
    """The metrics to show first, as far as the run has them; see `headline.HEADLINE`."""
    counts: dict[str, int]
    """Records of each stream, hidden ones included."""
    dropped: dict[str, int]
    """Records its writers dropped under pressure, by stream."""
    damaged: int
    """Lines of its files that could not be read."""
    hidden: int
    """Metric records and episodes that a resume made void."""
    parents: tuple[str, ...]


class ConfigChange(Settings):
    """A place at which two definitions differ."""

    path: str
    """Dotted, such as `recipe.optimizer.learning_rate`."""
    before: JsonValue
    after: JsonValue
    before_origin: str
    """`default`, `recipe`, `user` or `planner`; empty: it is not there."""
    after_origin: str


class SourceChange(Settings):
    """A source file that differs between two runs."""

    path: str
    state: Literal["added", "removed", "changed"]
    diff: str
    """Unified, at most 100,000 characters; empty for files that are not text."""


class ConfigDifference(Settings):
    """How one run's definition and code differ from another's."""

    before: str
    """Id of the run compared with."""
    after: str
    changes: tuple[ConfigChange, ...]
    sources: tuple[SourceChange, ...]
    environment: tuple[ConfigChange, ...]
    """Packages, machine and images that differ."""


class ComparedRun(Settings):
    """One run among several."""

    row: RunRow
    values: dict[str, float | None]
    """Each asked metric's newest value; None: the run does not have it."""
    best: dict[str, float | None]
    """Each asked metric's greatest value."""
    evaluations: tuple[Figure, ...]
    """The newest of every suite."""
    settings: dict[str, JsonValue]
    """The values of its definition at the paths where the runs differ."""


class Comparison(Settings):
    """Several runs beside each other."""

    runs: tuple[ComparedRun, ...]
    metrics: tuple[str, ...]
    """Metrics compared."""
    differing: tuple[str, ...]
    """Dotted paths at which the definitions are not all the same."""
