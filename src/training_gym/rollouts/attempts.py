"""Which episode is played, and what ends it early."""

from __future__ import annotations

from dataclasses import dataclass

from training_gym.spec.sampling import SampleKey
from training_gym.spec.tasks import Task


@dataclass(frozen=True)
class Attempt:
    """Which episode: everything its random numbers depend on."""

    task: Task
    member: int
    visit: int
    stream: str
    group: str

    @property
    def id(self) -> str:
        """Unique within a run."""
        return f"{self.group}.{self.member}"

    @property
    def place(self) -> str:
        """What the environment's random numbers depend on, besides the seed."""
        return f"{self.stream}/{self.task.id}/{self.visit}/{self.member}"

    def key(self, seed: int) -> SampleKey:
        """What the sampler's random numbers depend on."""
        return SampleKey(
            seed=seed,
            task=self.task.id,
            member=self.member,
            visit=self.visit,
            stream=self.stream,
        )


@dataclass(frozen=True)
class Limits:
    """What ends an episode early."""

    max_turns: int
    """Answers of each agent."""
    timeout_s: float
    max_tokens: int | None = None
    """Tokens sampled by all agents together; looked at before each answer."""
