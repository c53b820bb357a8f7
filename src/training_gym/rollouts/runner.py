"""Plays episodes: policy and environment together, within limits, failures told apart.

What an environment raises is a failure of infrastructure: the episode is played once more, then
dropped and counted. A limit that is reached truncates. Neither is ever a score of zero.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from training_gym.rewards.faults import describe_error
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.environment import Environment, Policy
from training_gym.spec.episodes import Counters, Episode, Outcome, Trajectory
from training_gym.spec.errors import EngineError, GymError, ModelError
from training_gym.spec.messages import Message, user
from training_gym.spec.sampling import SampleKey, Sampler, Sampling
from training_gym.spec.tasks import Task
from training_gym.spec.text import TextCodec

Presence = Callable[[str], AbstractAsyncContextManager[None]]
"""Tells the sampler that an episode is in play, by its session."""


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


@dataclass(frozen=True)
class Limits:
    """What ends an episode early."""

    max_turns: int
    timeout_s: float


class TurnLimit(BaseException):
    """The policy was asked for one turn too many. No `except Exception` swallows it."""


class EpisodeContext:
    """Implements `spec.environment.Context` for one episode."""

    def __init__(self, seed: int, key: str, timeout_s: float, policies: Callable[[str], Policy]):
        """Random numbers depend on `seed` and `key` only."""
        self.rng = random.Random(f"{seed}/{key}")
        self.lines: list[dict[str, Any]] = []
        self._ends = time.monotonic() + timeout_s
        self._policies = policies

    @property
    def deadline_s(self) -> float:
        """See `spec.environment.Context`."""
        return max(self._ends - time.monotonic(), 0.0)

    def policy(self, agent: str) -> Policy:
        """See `spec.environment.Context`."""
        return self._policies(agent)

    def log(self, message: str, **fields: Any) -> None:
        """See `spec.environment.Context`."""
        self.lines.append({"message": message, **fields})


class CountedPolicy:
    """A policy that ends the episode at its turn limit and keeps the conversation."""

    def __init__(self, inner: SampledPolicy, max_turns: int) -> None:
        """Pass calls on to `inner`, at most `max_turns` of them."""
        self.inner = inner
        self.messages: list[Message] = []
        self._left = max_turns

    async def chat(self, messages: Sequence[Message], **options: Any) -> Message:
        """See `spec.environment.Policy`."""
        self._count()
        reply = await self.inner.chat(messages, **options)
        self.messages = [*messages, reply]
        return reply

    async def complete(self, text: str, **options: Any) -> Message:
        """See `spec.environment.Policy`."""
        self._count()
        reply = await self.inner.complete(text, **options)
        self.messages = [user(text), reply]
        return reply

    def _count(self) -> None:
        if self._left == 0:
            raise TurnLimit
        self._left -= 1


class EpisodeRunner:
    """Plays attempts against one sampler."""

    def __init__(
        self,
        sampler: Sampler,
        codec: TextCodec,
        environment: Environment,
        *,
        seed: int,
        limits: Limits,
        presence: Presence | None = None,
    ) -> None:
        """`presence` lets a deterministic sampler know who is in play."""
        self._sampler = sampler
        self._codec = codec
        self._environment = environment
        self._seed = seed
        self._limits = limits
        self._presence = presence or (lambda _: contextlib.nullcontext())

    async def play(self, attempt: Attempt, sampling: Sampling, counters: Counters) -> Episode:
        """Play until it worked or failed twice for reasons of infrastructure."""
        episode = await self._once(attempt, sampling, counters)
        if episode.outcome.status == "infrastructure_failed":
            again = await self._once(attempt, sampling, counters)
            return again.changed(retries=1)
        return episode

    async def play_group(
        self, attempts: Sequence[Attempt], sampling: Sampling, counters: Counters
    ) -> list[Episode]:
        """Play the members of a group side by side."""
        plays = (self.play(attempt, sampling, counters) for attempt in attempts)
        return list(await asyncio.gather(*plays))

    async def _once(self, attempt: Attempt, sampling: Sampling, counters: Counters) -> Episode:
        started = time.monotonic()
        record = TokenRecord(self._codec)
        policies: dict[str, CountedPolicy] = {}

        def policy(agent: str) -> CountedPolicy:
            if agent not in policies:
                policies[agent] = self._policy(attempt, record, sampling, agent)
            return policies[agent]

        key = f"{attempt.stream}/{attempt.task.id}/{attempt.visit}/{attempt.member}"
        context = EpisodeContext(self._seed, key, self._limits.timeout_s, policy)
        async with self._presence(attempt.id):
            outcome = await self._outcome(attempt.task, policy("policy"), context)
        if context.lines:
            outcome = outcome.changed(artifacts={**outcome.artifacts, "log": context.lines})
        trajectories = record.trajectories()
        return Episode(
            id=attempt.id,
            task=attempt.task,
            group=attempt.group,
            member=attempt.member,
            stream=attempt.stream,
            messages=tuple(policies["policy"].messages),
            trajectories=trajectories,
            outcome=_cut_short(outcome, policies.values(), trajectories),
            score=None if outcome.status == "infrastructure_failed" else outcome.score,
            counters=counters,
            duration_s=time.monotonic() - started,
            forks=record.forks,
            fidelity=tuple(record.fidelity),
        )

    async def _outcome(self, task: Task, policy: Policy, context: EpisodeContext) -> Outcome:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                outcome = await self._environment.run(task, policy, context)
        except TurnLimit:
            return Outcome(status="truncated", reason=f"{self._limits.max_turns} turns")
        except TimeoutError:
            if context.deadline_s > 0:
                return Outcome(status="infrastructure_failed", reason="TimeoutError")
            return Outcome(status="truncated", reason=f"{self._limits.timeout_s:g} s")
        except (EngineError, ModelError):
            raise  # ours, and the same for every episode
        except GymError as error:
            return Outcome(status="infrastructure_failed", reason=error.message)
        except Exception as error:  # noqa: BLE001 - boundary: the environment's own code
            return Outcome(status="infrastructure_failed", reason=describe_error(error))
        if not isinstance(outcome, Outcome):
            reason = f"run() returned {outcome!r:.60} instead of an Outcome"
            return Outcome(status="infrastructure_failed", reason=reason)
        return outcome

    def _policy(
        self, attempt: Attempt, record: TokenRecord, sampling: Sampling, agent: str
    ) -> CountedPolicy:
        key = SampleKey(
            seed=self._seed,
            task=attempt.task.id,
            member=attempt.member,
            visit=attempt.visit,
            stream=attempt.stream,
        )
        inner = SampledPolicy(
            self._sampler,
            self._codec,
            record,
            key,
            sampling,
            agent=agent,
            session=attempt.id,
        )
        return CountedPolicy(inner, self._limits.max_turns)


def _cut_short(outcome: Outcome, policies: Any, trajectories: Sequence[Trajectory]) -> Outcome:
    """An episode whose last answer was cut off counts as truncated."""
    last = [policy.inner.stop_reasons[-1] for policy in policies if policy.inner.stop_reasons]
    cut = next((reason for reason in last if reason in ("length", "context")), None)
    if outcome.status == "finished" and cut is not None:
        return outcome.changed(status="truncated", reason=f"answer ended by {cut}")
    if outcome.status == "finished" and not trajectories:
        return outcome.changed(status="model_failed", reason="nothing was sampled")
    return outcome
