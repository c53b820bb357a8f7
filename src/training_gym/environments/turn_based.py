"""Games and simulators: `reset` and `step` instead of free-form code."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.messages import Message, user
from training_gym.spec.tasks import Task


@dataclass(frozen=True)
class Turn:
    """What the environment answers to the policy's text."""

    observation: str = ""
    reward: float = 0.0
    done: bool = False


class TurnBased(abc.ABC):
    """An environment written as `reset` and `step`.

    State belongs in what `reset` returns, not on `self`: episodes run side by side. The sum of
    all rewards becomes the episode's score, each turn's reward is kept.
    """

    max_turns: int = 16
    """Turns after which the episode is truncated."""

    @abc.abstractmethod
    def reset(self, task: Task, ctx: Context) -> tuple[Any, str]:
        """A new episode's state and the first observation, shown after the task's prompt."""

    @abc.abstractmethod
    def step(self, state: Any, text: str, ctx: Context) -> Turn:
        """Answer the policy's text; `state` may be changed in place."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Alternate between policy and environment until done."""
        state, observation = self.reset(task, ctx)
        messages = _opening(task, observation)
        rewards: list[float] = []
        for _ in range(self.max_turns):
            reply = await policy.chat(messages)
            turn = self.step(state, reply.text, ctx)
            rewards.append(turn.reward)
            if turn.done:
                return Outcome(score=Score(value=sum(rewards), turns=tuple(rewards)))
            messages = [*messages, reply, user(turn.observation)]
        return Outcome(
            status="truncated",
            reason=f"no end after {self.max_turns} turns",
            score=Score(value=sum(rewards), turns=tuple(rewards)),
        )


def _opening(task: Task, observation: str) -> list[Message]:
    messages = [user(task.prompt)] if isinstance(task.prompt, str) else list(task.prompt)
    messages = [message for message in messages if message.text or message.role != "user"]
    if not observation:
        return messages
    if messages and messages[-1].role == "user":
        joined = f"{messages[-1].text}\n\n{observation}"
        return [*messages[:-1], user(joined)]
    return [*messages, user(observation)]
