"""What kind of demo run, and how large."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from training_gym.spec.settings import Settings

Kind = Literal[
    "healthy",
    "reward_hacking",
    "zero_variance",
    "entropy_collapse",
    "learning_rate",
    "mismatch",
    "dead_sandbox",
    "stall",
    "resumed",
    "hostile",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
MEANINGS: dict[Kind, str] = {
    "healthy": "learns, and its evaluations say so",
    "reward_hacking": "reward rises because answers grow long; the evaluation falls",
    "zero_variance": "ever more groups get the same reward",
    "entropy_collapse": "entropy falls to nothing, and with it the variety of answers",
    "learning_rate": "far too high a learning rate: gradient, entropy and length blow up",
    "mismatch": "the trainer's log-probabilities part from the sampler's",
    "dead_sandbox": "the sandbox provider dies half-way",
    "stall": "hangs in the middle of a reward, until it is stopped",
    "resumed": "killed and resumed: what the first attempt recorded too much is hidden",
    "hostile": "texts and names that try to act on whatever shows them",
}


class DemoShape(Settings):
    """A demo run. The same shape gives the same records, apart from the clock."""

    kind: Kind = "healthy"
    steps: int = Field(120, ge=1, le=1_000_000)
    """Batches to learn from."""
    groups: int = Field(4, ge=0, le=10_000)
    """Groups in a batch; 0: no episodes are recorded."""
    group_size: int = Field(8, ge=1, le=1024)
    metrics: int = Field(40, ge=1, le=10_000)
    """Metrics of a batch; above some 30 the rest are the norms of layers."""
    evaluate_every: int = Field(20, ge=0)
    """Batches between evaluations; 0: none at all."""
    evaluation_tasks: int = Field(24, ge=1, le=10_000)
    answer_words: int = Field(60, ge=1, le=20_000)
    """About how long an answer is at first."""
    step_s: float = Field(40.0, gt=0)
    """Seconds a batch takes in the run's own time."""
    price_per_hour: float | None = Field(None, ge=0)
    """What an hour costs; None: no cost is recorded."""
    seed: int = 0
    spans: bool = True
    columns: bool = True
    """Token columns for display: entropy, advantage, the trainer's log-probabilities."""
    logs: bool = True
