"""Where the agents of an episode get their answers from: a sampler of ours, or a server's model.

A sampler's answers are token-exact and can be trained on; of a server's nothing but the text is
known, so its episodes can be judged and shown, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.drift import DriftLimits
from training_gym.spec.environment import Policy
from training_gym.spec.episodes import Fidelity, Trajectory
from training_gym.spec.sampling import Sampler, Sampling, StopReason
from training_gym.spec.text import TextCodec


class SeatedPolicy(Policy, Protocol):
    """One agent's policy in one episode."""

    stop_reasons: list[StopReason]
    """How each of its answers ended."""
    num_tokens: int
    """Tokens it has sampled so far."""


class Seats(Protocol):
    """The agents of one episode."""

    records_tokens: bool
    """Whether an episode without trajectories is one in which nothing was sampled."""

    def policy(self, agent: str) -> SeatedPolicy:
        """A new policy for an agent."""
        ...

    def trajectories(self) -> Sequence[Trajectory]:
        """What was sampled, so far."""
        ...

    @property
    def forks(self) -> int:
        """Requests whose history differed from what was recorded."""
        ...

    @property
    def fidelity(self) -> Sequence[Fidelity]:
        """How each prompt came about."""
        ...


class Players(Protocol):
    """What episodes are played against."""

    def seats(self, attempt: Attempt, sampling: Sampling) -> Seats:
        """The agents of one episode, none of which has said anything."""
        ...


class SampledPlayers:
    """Implements `Players` over a sampler."""

    def __init__(
        self,
        sampler: Sampler,
        codec: TextCodec,
        *,
        seed: int,
        drift: DriftLimits | None = None,
    ) -> None:
        """Random numbers depend on `seed` and the attempt; `drift` holds for each episode."""
        self._sampler = sampler
        self._codec = codec
        self._seed = seed
        self._drift = drift

    def seats(self, attempt: Attempt, sampling: Sampling) -> SampledSeats:
        """See `Players`."""
        record = TokenRecord(self._codec, self._drift)
        return SampledSeats(self._sampler, self._codec, record, attempt, sampling, self._seed)


class SampledSeats:
    """Implements `Seats`: every agent samples, all into one record."""

    records_tokens = True

    def __init__(
        self,
        sampler: Sampler,
        codec: TextCodec,
        record: TokenRecord,
        attempt: Attempt,
        sampling: Sampling,
        seed: int,
    ) -> None:
        """`record` is empty, and this episode's alone."""
        self.record = record
        self._sampler = sampler
        self._codec = codec
        self._attempt = attempt
        self._sampling = sampling
        self._seed = seed

    def policy(self, agent: str) -> SampledPolicy:
        """See `Seats`."""
        return SampledPolicy(
            self._sampler,
            self._codec,
            self.record,
            self._attempt.key(self._seed),
            self._sampling,
            agent=agent,
            session=self._attempt.id,
        )

    def trajectories(self) -> tuple[Trajectory, ...]:
        """See `Seats`."""
        return self.record.trajectories()

    @property
    def forks(self) -> int:
        """See `Seats`."""
        return self.record.forks

    @property
    def fidelity(self) -> Sequence[Fidelity]:
        """See `Seats`."""
        return self.record.fidelity
