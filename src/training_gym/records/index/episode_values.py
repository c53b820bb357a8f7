"""What the index says of episodes: filters, rows, pages, and one episode token by token."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from training_gym.records.index.series_values import require_interval
from training_gym.spec.episodes import OutcomeStatus
from training_gym.spec.errors import SpecError, did_you_mean
from training_gym.spec.settings import Settings

EpisodeOrder = Literal["newest", "oldest", "reward", "length", "duration", "staleness"]


class Range(Settings):
    """Numbers from `low` to `high`, both included; None: no bound on this side."""

    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        require_interval("low", self.low, "high", self.high)
        return self


class EpisodeQuery(Settings):
    """Which episodes; every condition that is given must hold."""

    stream: str | None = None
    """`train`, `eval:<suite>`, or `eval` for all evaluations."""
    step: Range | None = None
    """See `EpisodeRow.step`."""
    group: str | None = None
    task: str | None = None
    """Id of the task."""
    environment: str | None = None
    """The task's metadata `environment`, else `env`."""
    status: tuple[OutcomeStatus, ...] = ()
    reward: Range | None = None
    judged: bool | None = None
    """Whether it has a score."""
    component: str | None = None
    """Has this component of the reward …"""
    component_value: Range | None = None
    """… and its value lies here."""
    length: Range | None = None
    """Sampled tokens."""
    staleness: Range | None = None
    error: str = ""
    """Part of the reason it ended, or of why it could not be judged; case counts for nothing."""
    discarded: bool | None = None
    """Whether it taught nothing; see `EpisodeRow.discarded`."""
    text: str = ""
    """Part of what the conversation says; case counts for nothing. Reads the run's files: a page
    may end early with `complete` false, and its cursor goes on."""
    since: float | None = None
    """Only those recorded after this moment, in seconds since 1970."""
    order: EpisodeOrder = "newest"
    descending: bool = True
    """For `reward`, `length`, `duration` and `staleness`: the greatest first. Those without a
    value come last either way."""
    hidden: bool = False
    """Also those that a resume made void."""
    cursor: str = ""
    """Of the page before; holds for the same conditions and order only."""
    limit: int = Field(50, ge=1, le=1000)

    @field_validator("stream")
    @classmethod
    def _is_a_stream(cls, stream: str | None) -> str | None:
        if stream in (None, "train", "eval") or str(stream).startswith("eval:"):
            return stream
        raise SpecError(
            f"no stream of episodes is called {stream!r:.60}",
            fix=did_you_mean(str(stream), ("train", "eval", "eval:NAME")),
        )


class EpisodeRow(Settings):
    """An episode in a list."""

    id: str
    stream: str
    """`train` or `eval:<suite>`."""
    group: str
    member: int
    task: str
    environment: str
    """Empty: the task names none."""
    step: int | None
    """The point of a curve it belongs to. In training: the batch it was part of, counted from 1,
    which is `batch` of the metrics that sum it up. In an evaluation: batches learned from before
    it, 0 for the baseline."""
    optimizer_step: int | None
    policy_version: int | None
    """What the sampler served when it began."""
    attempt: int
    time: float
    """Seconds since 1970 when it was recorded."""
    status: OutcomeStatus
    reason: str
    """Why it ended, where there is something to say."""
    reward: float | None
    components: dict[str, float]
    advantage: float | None
    """Reward against the others of its group, (r - mean) / standard deviation (Shao et al. 2024,
    DeepSeekMath); 0 where all are equal; None where it was not judged or is no training."""
    tokens: int
    """Sampled tokens."""
    prompt_tokens: int
    turns: int
    """Answers of the policy."""
    staleness: int | None
    """Policy versions between its oldest sampled token and its newest, or what the engine says."""
    mean_logprob: float | None
    """Mean log-probability of the sampled tokens; None: there are none."""
    duration_s: float
    retries: int
    discarded: str
    """Why it taught nothing: it failed, could not be judged, all of its group got the same
    reward, or what an `episode_discarded` event says. Empty: it taught, or was an evaluation."""
    hidden: bool
    """A resume made it void."""
    preview: str
    """The beginning of its last answer, at most 160 characters."""


class EpisodePage(Settings):
    """Some of the episodes that match."""

    episodes: tuple[EpisodeRow, ...]
    cursor: str
    """Pass in the next query; empty: this was the last page."""
    complete: bool
    """False: a search for text stopped early to stay quick; go on with `cursor`."""
    total: int | None
    """Episodes that match; None where counting would mean reading them (`text`, `error`)."""


class TokenColumns(Settings):
    """One trajectory token by token. All columns have length T."""

    agent: str
    prompt_length: int
    ids: tuple[int, ...]
    text: tuple[str, ...] | None
    """Each token's text, where the run has a `vocabulary.json`; joined they need not give the
    whole text: characters that several tokens share are shown as replacement characters."""
    flags: tuple[int, ...]
    """A sum of `SAMPLED`, `PROMPT`, `TOOL`, `STOP`; see `spec.episodes`."""
    trained: tuple[bool, ...]
    """Loss mask."""
    versions: tuple[int, ...]
    """-1 where not sampled."""
    logprobs: tuple[float, ...]
    """At sampling; 0.0 where not sampled."""
    columns: dict[str, tuple[float, ...]]
    """What else was recorded, such as `entropy`, `advantage`, `trainer_logprobs`; `mismatch`
    (trainer minus sampler) where both are known. NaN where it does not apply."""


class EpisodeDetail(Settings):
    """One episode with all there is of it."""

    row: EpisodeRow
    episode: dict[str, JsonValue]
    """As recorded, without trajectories: task, messages, outcome, score; see `spec.episodes`."""
    trajectories: tuple[TokenColumns, ...]
    problem: str
    """Why token columns could not be read; empty: nothing is wrong."""
    siblings: tuple[str, ...]
    """Ids of its group, in order of place, itself included."""
    events: tuple[dict[str, JsonValue], ...]
    """Events and failures that name it."""


class GroupRow(Settings):
    """The episodes of one task in one batch, summed up."""

    group: str
    task: str
    asked: str
    """What the task asks, on one line and cut short, for a person to know it by; may be empty."""
    environment: str
    stream: str
    step: int | None
    size: int
    judged: int
    mean: float | None
    """Of the rewards; None: none was judged."""
    low: float | None
    high: float | None
    equal: bool
    """At least two were judged and all got the same reward (max - min < 1e-6)."""
    rewards: tuple[float | None, ...]
    """By place in the group."""
    ids: tuple[str, ...]


class GroupView(Settings):
    """A group side by side."""

    row: GroupRow
    episodes: tuple[EpisodeDetail, ...]
    """Without token columns."""


class StepRow(Settings):
    """The training episodes of one batch, summed up."""

    step: int
    episodes: int
    groups: int
    equal_groups: int
    judged: int
    failed: int
    """Ended by infrastructure."""
    truncated: int
    mean: float | None
    low: float | None
    high: float | None
    mean_tokens: float


class Histogram(Settings):
    """How often values lie between edges; n counts, n + 1 edges."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    missing: int
    """Episodes that match and have no value."""
