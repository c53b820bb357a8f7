"""Games and simulators: `reset` and `step` instead of free-form code."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from training_gym.environments.opening import opening
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.messages import user
from training_gym.spec.tasks import Task


@dataclass(frozen=True)
class Turn:
    """What the environment answers to the policy's text."""

    observation: str = ""
    reward: float = 0.0
    done: bool = False


class TurnBased(abc.ABC):
    """An environment written as `reset` and `step`, each plain or `async`.

    State belongs in what `reset` returns, not on `self`: episodes run side by side. The sum of
    all rewards becomes the episode's score, each turn's reward is kept. A plain `step` should be
    quick, since everything else waits for it; one that computes or waits belongs in an `async` one.
    """

    max_turns: int = 16
    """Turns after which the episode is truncated."""

    @abc.abstractmethod
    def reset(self, task: Task, ctx: Context) -> tuple[Any, str] | Awaitable[tuple[Any, str]]:
        """A new episode's state and the first observation, shown after the task's prompt."""

    @abc.abstractmethod
    def step(self, state: Any, text: str, ctx: Context) -> Turn | Awaitable[Turn]:
        """Answer the policy's text; `state` may be changed in place."""

    def describe(self, state: Any) -> JsonValue:
        """The state as it shall be kept with the episode; None: not at all."""
        return None

    def close(self, state: Any) -> Awaitable[None] | None:
        """Free what the state holds, however the episode ended."""
        return None

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Alternate between policy and environment until done."""
        state, observation = await _awaited(self.reset(task, ctx))
        try:
            outcome = await self._play(state, observation, task, policy, ctx)
        finally:
            described = self.describe(state)
            if described is not None:
                ctx.keep({"state": described})
            await _awaited(self.close(state))
        return outcome

    async def _play(
        self, state: Any, observation: str, task: Task, policy: Policy, ctx: Context
    ) -> Outcome:
        messages = opening(task, observation)
        rewards: list[float] = []
        for _ in range(self.max_turns):
            reply = await policy.chat(messages)
            turn: Turn = await _awaited(self.step(state, reply.text, ctx))
            rewards.append(turn.reward)
            score = Score(value=sum(rewards), turns=tuple(rewards))
            if turn.done:
                return Outcome(score=score)
            ctx.keep(score=score)  # it counts, too, where a limit of the run ends the episode
            messages = [*messages, reply, user(turn.observation)]
        return Outcome(status="truncated", reason=f"no end after {self.max_turns} turns")


async def _awaited(value: Any) -> Any:
    """What a plain or an asynchronous method returned."""
    return await value if inspect.isawaitable(value) else value
