"""Plays episodes: policy and environment together, within limits, failures told apart.

What an environment raises is a failure of infrastructure: the episode is played once more, then
dropped and counted. A limit that is reached truncates. Neither is ever a score of zero.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from training_gym.rewards.faults import describe_error
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.context import EpisodeContext
from training_gym.rollouts.limited import Allowance, LimitedPolicy, LimitReached
from training_gym.rollouts.seats import Players
from training_gym.rollouts.services import Services
from training_gym.spec.environment import Environment, Policy
from training_gym.spec.episodes import (
    LARGEST_SCORE,
    Counters,
    Episode,
    Outcome,
    is_countable,
)
from training_gym.spec.errors import EngineError, GymError, ModelError
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task

Presence = Callable[[str], AbstractAsyncContextManager[None]]
"""Tells the sampler that an episode is in play, by its session."""

MAIN = "policy"
"""The agent an environment is given; others it asks for by name."""


class EpisodeRunner:
    """Plays attempts at one environment until closed."""

    def __init__(
        self,
        players: Players,
        environment: Environment,
        *,
        seed: int,
        limits: Limits,
        presence: Presence | None = None,
        services: Services | None = None,
    ) -> None:
        """`presence` lets a deterministic sampler know who is in play.

        `services` stay their caller's. Without them the runner has, and closes, its own; of fixed
        models it then knows those behind addresses.
        """
        self._players = players
        self._environment = environment
        self._seed = seed
        self._limits = limits
        self._presence = presence or (lambda _: contextlib.nullcontext())
        self._services = services or Services()
        self._owns_services = services is None

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

    async def close(self) -> None:
        """End what episodes used in common: the environment's own things, sandboxes, addresses."""
        if hasattr(self._environment, "aclose"):
            await self._environment.aclose()
        if self._owns_services:
            await self._services.close()

    async def _once(self, attempt: Attempt, sampling: Sampling, counters: Counters) -> Episode:
        started = time.monotonic()
        seats = self._players.seats(attempt, sampling)
        allowance = Allowance(self._limits.max_tokens)
        agents: dict[str, LimitedPolicy] = {}

        def policy(agent: str) -> LimitedPolicy:
            if agent not in agents:
                agents[agent] = LimitedPolicy(
                    seats.policy(agent), self._limits, allowance, sampling
                )
            return agents[agent]

        context = EpisodeContext(
            self._seed,
            attempt,
            timeout_s=self._limits.timeout_s,
            policies=policy,
            services=self._services,
        )
        async with self._presence(attempt.id):
            outcome = await self._outcome(attempt.task, policy(MAIN), context)
        paths = tuple(seats.trajectories())
        silent = seats.records_tokens and not paths
        outcome = _cut_short(context.completed(outcome), agents, allowance, silent=silent)
        outcome = _countable(outcome)
        others = {name: tuple(agent.messages) for name, agent in agents.items() if name != MAIN}
        return Episode(
            id=attempt.id,
            task=attempt.task,
            group=attempt.group,
            member=attempt.member,
            stream=attempt.stream,
            messages=tuple(agents[MAIN].messages),
            conversations=others,
            trajectories=paths,
            outcome=outcome,
            score=None if outcome.status == "infrastructure_failed" else outcome.score,
            counters=counters,
            duration_s=time.monotonic() - started,
            forks=seats.forks,
            fidelity=tuple(seats.fidelity),
        )

    async def _outcome(self, task: Task, policy: Policy, context: EpisodeContext) -> Outcome:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                outcome = await self._environment.run(task, policy, context)
        except LimitReached as limit:
            return Outcome(status="truncated", reason=str(limit))
        except TimeoutError:
            if context.deadline_s > 0:
                return Outcome(status="infrastructure_failed", reason="TimeoutError")
            return Outcome(status="truncated", reason=f"{self._limits.timeout_s:g} s")
        except asyncio.CancelledError as error:
            play = asyncio.current_task()
            if play is not None and play.cancelling():
                raise  # the whole episode is given up
            return Outcome(status="infrastructure_failed", reason=describe_error(error))
        except (EngineError, ModelError):
            raise  # ours, and the same for every episode
        except GymError as error:
            return Outcome(status="infrastructure_failed", reason=error.message, fix=error.fix)
        except BaseExceptionGroup as group:
            return self._of_group(group)
        # The boundary to the environment's own code; `sys.exit` there is an error like any other.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return Outcome(status="infrastructure_failed", reason=describe_error(error))
        if not isinstance(outcome, Outcome):
            reason = f"run() returned {outcome!r:.60} instead of an Outcome"
            return Outcome(status="infrastructure_failed", reason=reason)
        return outcome

    def _of_group(self, group: BaseExceptionGroup[BaseException]) -> Outcome:
        """What a task group of the environment ended with: a limit, else its first failure."""
        limits, rest = group.split(LimitReached)
        if rest is None and limits is not None:
            return Outcome(status="truncated", reason=str(_first(limits)))
        assert rest is not None
        first = _first(rest)
        if isinstance(first, EngineError | ModelError) or not isinstance(first, Exception):
            raise group
        if isinstance(first, GymError):
            return Outcome(status="infrastructure_failed", reason=first.message, fix=first.fix)
        return Outcome(status="infrastructure_failed", reason=describe_error(first))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _cut_short(
    outcome: Outcome, agents: dict[str, LimitedPolicy], allowance: Allowance, *, silent: bool
) -> Outcome:
    """An episode whose last answer was cut off counts as truncated; `silent`: nothing was said."""
    if outcome.status != "finished":
        return outcome
    last = [agent.inner.stop_reasons[-1] for agent in agents.values() if agent.inner.stop_reasons]
    cut = next((reason for reason in last if reason in ("length", "context")), None)
    if cut is not None:
        reason = f"answer ended by {cut}"
        if cut == "length" and allowance.is_spent:
            reason = f"{allowance.max_tokens} tokens"
        return outcome.changed(status="truncated", reason=reason)
    if silent:
        return outcome.changed(status="model_failed", reason="nothing was sampled")
    return outcome


def _countable(outcome: Outcome) -> Outcome:
    """The outcome, failed if its score is no number that can be computed with.

    One NaN among the rewards of a group would make all its advantages NaN.
    """
    score = outcome.score
    if score is None:
        return outcome
    values = [
        score.value,
        *score.components.values(),
        *(score.turns or ()),
        *(score.agents or {}).values(),
    ]
    wrong = next((value for value in values if not is_countable(value)), None)
    if wrong is None:
        return outcome
    return outcome.changed(
        status="infrastructure_failed",
        reason=f"the environment gave {wrong} as a score",
        fix=f"give numbers of at most {LARGEST_SCORE:g}, or no score where there is none",
        score=None,
    )
