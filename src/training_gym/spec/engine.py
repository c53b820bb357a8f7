"""The seam between a plan and what trains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from training_gym.spec.episodes import Trajectory
from training_gym.spec.job import Job, Tap
from training_gym.spec.plan import Plan
from training_gym.spec.run import RunSpec
from training_gym.spec.settings import Settings


class Support(Settings):
    """What an engine does with one setting."""

    path: str
    """Dotted path in the run's definition."""
    verdict: Literal["honoured", "approximated", "refused"]
    reason: str = ""
    fix: str = ""


class SupportReport(Settings):
    """What an engine does with a resolved run; settings not listed are honoured."""

    engine: str
    entries: tuple[Support, ...] = ()

    @property
    def refused(self) -> tuple[Support, ...]:
        """Settings that would not be honoured."""
        return tuple(entry for entry in self.entries if entry.verdict == "refused")


class Engine(Protocol):
    """Trains a plan, somewhere else: as a job."""

    name: str

    def supports(self, run: RunSpec) -> SupportReport:
        """What this engine honours, approximates or refuses of the run."""
        ...

    def render(self, plan: Plan, run_id: str, attempt: int) -> Job:
        """The job that trains the plan."""
        ...

    def taps(self, plan: Plan) -> tuple[Tap, ...]:
        """How the engine's own outputs become records."""
        ...


Column = Literal["old_logprobs", "reference_logprobs", "values", "returns"]
"""Further numbers a loss may need of every token:

- `old_logprobs`: the trainer's own log-probability before the batch's first update;
- `reference_logprobs`: that of the reference policy or of the teacher;
- `values`: the value head's estimate, before the first update, of the state a token is drawn in;
- `returns`: what the value head shall estimate there."""


class TrainingBatch(Settings):
    """What a trainer learns from in one optimizer step."""

    trajectories: tuple[Trajectory, ...]
    advantages: tuple[tuple[float, ...], ...]
    """Per trajectory, one value per token; ignored where the loss mask is off."""
    weights: tuple[float, ...]
    """Share of each trajectory in its episode; an episode's shares sum to 1."""
    columns: dict[Column, tuple[tuple[float, ...], ...]] = {}
    """What the algorithm needs beside; per trajectory, one value per token."""


class Trainer(Protocol):
    """Trajectories and advantages in, new weights out."""

    def step(self, batch: TrainingBatch) -> dict[str, float]:
        """One update of the weights; returns metrics."""
        ...

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of each token given those before it; 0.0 for the first."""
        ...

    def save(self, directory: str) -> None:
        """Write optimizer, counters and random state for an exact resume."""
        ...

    def load(self, directory: str) -> None:
        """Read what `save` wrote."""
        ...

    def export(self, directory: str) -> None:
        """Write the weights in Hugging Face layout."""
        ...
