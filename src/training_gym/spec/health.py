"""What watches over a run: thresholds of the health rules, what alarms set off, who is told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from training_gym.spec.settings import Settings

RuleName = Literal[
    "zero_variance",
    "entropy_collapse",
    "entropy_blowup",
    "kl_spike",
    "clip_fraction",
    "grad_norm",
    "reward_drop",
    "length_drift",
    "length_reward",
    "truncation",
    "mismatch",
    "train_eval_gap",
    "reward_concentration",
    "duplicates",
    "repetition",
    "tampering",
    "infrastructure",
    "accelerator_idle",
    "stall",
    "heartbeat",
    "staleness",
    "telemetry_loss",
    "learning_rate_low",
    "group_size_low",
    "answer_limit_high",
]
"""Every rule; those of tuning advice last."""

Severity = Literal["advice", "warning", "critical"]
Action = Literal["checkpoint", "pause", "stop"]


class Bounds(Settings):
    """Where a rule warns and where it alarms; for most rules the higher the worse."""

    warning: float = Field(ge=0)
    critical: float = Field(ge=0)
    """Infinity: never."""


class Thresholds(Settings):
    """When the rules of `docs/health.md` speak. The run's manifest keeps what it was watched by."""

    zero_variance: Bounds = Bounds(warning=0.5, critical=0.9)
    """Share of groups whose rewards are all equal."""
    entropy_collapse: Bounds = Bounds(warning=0.3, critical=0.1)
    """Entropy as a share of its reference; the lower the worse."""
    entropy_blowup: Bounds = Bounds(warning=2.0, critical=4.0)
    """Entropy as a multiple of its reference; never below `entropy_floor`."""
    entropy_floor: float = Field(1.0, ge=0)
    """Entropy in nats per token below which it cannot be called blown up."""
    kl_spike: Bounds = Bounds(warning=6.0, critical=10.0)
    """Distance of the KL from its median over 50 steps, in robust standard deviations."""
    kl_floor: float = Field(0.001, ge=0)
    """KL in nats per token that is never called a spike."""
    clip_fraction: Bounds = Bounds(warning=0.2, critical=0.4)
    """Clipped share of the trained tokens."""
    grad_norm: Bounds = Bounds(warning=5.0, critical=20.0)
    """Gradient norm as a multiple of its rolling median."""
    reward_drop: Bounds = Bounds(warning=4.0, critical=8.0)
    """Fall of the mean reward below its best, in standard errors of the difference."""
    length_drift: Bounds = Bounds(warning=2.0, critical=4.0)
    """Factor by which the median answer has become longer or shorter than its reference."""
    length_reward: Bounds = Bounds(warning=0.6, critical=0.8)
    """Rank correlation of length and reward within groups, while lengths drift."""
    truncation: Bounds = Bounds(warning=0.25, critical=0.5)
    """Share of episodes that were cut off."""
    mismatch: Bounds = Bounds(warning=1.02, critical=1.05)
    """Mean factor between a token's probability in training and in sampling."""
    mismatch_kl: Bounds = Bounds(warning=0.01, critical=0.1)
    """KL of the sampler from the trainer on the same weights, in nats per token."""
    mismatch_effective_share: float = Field(0.3, ge=0)
    """Effective share of the tokens under importance weighting below which it warns."""
    mismatch_mean_ratio: float = Field(2.0, ge=0)
    """Mean importance ratio above which, or below its inverse, it warns."""
    train_eval_gap: Bounds = Bounds(warning=1, critical=2)
    """Evaluations in a row that lie two standard errors below the best, while training rises."""
    reward_concentration: Bounds = Bounds(warning=0.8, critical=0.95)
    """Share of the reward's gain that one component made while no other gained."""
    format_concentration: float = Field(0.5, ge=0)
    """The same for a component about format or length, whatever the others did."""
    duplicates: Bounds = Bounds(warning=0.5, critical=0.9)
    """Share of a group's answers that another member gave word for word."""
    repetition: Bounds = Bounds(warning=0.1, critical=0.5)
    """Share of the answers that repeat themselves."""
    tampering: Bounds = Bounds(warning=0.0, critical=0.02)
    """Share of the episodes that meddle with tests, grader or exit codes; warns above 0."""
    infrastructure: Bounds = Bounds(warning=0.05, critical=0.2)
    """Failed share of the attempts at episodes in half an hour."""
    infrastructure_attempts: int = Field(100, ge=1)
    """Attempts within that half hour below which nothing is said."""
    accelerator_idle: Bounds = Bounds(warning=0.3, critical=0.6)
    """Share of a step in which nothing was sampled or trained."""
    stall_factor: float = Field(6.0, gt=0)
    """A component is stuck after so many of its usual durations …"""
    stall_floor_s: float = Field(300.0, gt=0)
    """… but not before so many seconds."""
    heartbeat_s: Bounds = Bounds(warning=30.0, critical=300.0)
    """Seconds of silence of a process that beats every 5 to 10."""
    staleness_bound: float | None = Field(None, ge=0)
    """Mean policy versions between sampling and training; None: the recipe's own bound."""
    stale_dropped: float = Field(0.1, ge=0)
    """Share of the episodes dropped as too old above which it warns."""
    telemetry_loss: Bounds = Bounds(warning=0.0, critical=0.01)
    """Share of the records that were dropped; warns above 0."""


class Webhook(Settings):
    """Who hears of alerts by an HTTP POST."""

    url: str | None = Field(None, pattern=r"^https?://")
    url_secret: str | None = None
    """Name of a variable, listed in the run's `secrets`, that holds the address."""
    severity: Literal["warning", "critical"] = "warning"
    """The least that is told."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Webhook:
        if (self.url is None) == (self.url_secret is None):
            raise ValueError("give either url or url_secret")
        return self


class Health(Settings):
    """How a run is watched. Rules inform; they act only where `actions` says so."""

    thresholds: Thresholds = Field(default_factory=Thresholds)
    """When the rules speak."""
    off: tuple[RuleName, ...] = ()
    """Rules that are not applied."""
    actions: dict[RuleName, Action] = {}
    """What a critical alert of a rule does: write a checkpoint, pause, or stop the run."""
    webhooks: tuple[Webhook, ...] = ()
    """Who hears of alerts."""
