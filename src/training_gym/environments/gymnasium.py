"""Environments of Gymnasium, and whatever has its `reset` and `step`, played by text."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pydantic_core
from pydantic import Field

from training_gym.environments.opening import opening
from training_gym.spec.code import CodeRef
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.messages import user
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task


class GymnasiumEnvironment(Settings):
    """Plays a Gymnasium environment by text: observations are shown, actions are read.

    Without functions of your own, observations are shown as JSON and the last number of an answer
    (or the last JSON list, for spaces of several numbers) is the action; one that the space does
    not hold is told so and costs a turn. Each episode makes an environment of its own, which is
    seeded by the task's row (`seed`) or by the episode's random numbers, and stepped in a thread.
    """

    id: str | None = None
    """Name by which Gymnasium makes it, such as `FrozenLake-v1`."""
    make: CodeRef | None = None
    """What makes one instead: a class or function, called with `options`."""
    options: dict[str, Any] = {}
    """Arguments it is made with."""
    shown_by: CodeRef | None = None
    """`(observation, info) -> str`: how an observation is shown."""
    read_by: CodeRef | None = None
    """`(text, env) -> action`: how an answer is read; a `ValueError`'s words go to the policy."""
    instructions: str = ""
    """Said before the first observation."""
    max_turns: int = Field(32, ge=1)
    """Answers after which the episode is truncated."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Reset, then step until it is over."""
        env = await asyncio.to_thread(self._made)
        try:
            return await self._play(env, task, policy, ctx)
        finally:
            await asyncio.to_thread(env.close)

    async def _play(self, env: Any, task: Task, policy: Policy, ctx: Context) -> Outcome:
        seed = task.metadata.get("seed")
        given = seed if isinstance(seed, int) else ctx.rng.randrange(2**31)
        observation, info = await asyncio.to_thread(env.reset, seed=given)
        shown = self._shown(observation, info)
        messages = opening(task, f"{self.instructions}\n{shown}".strip())
        rewards: list[float] = []
        for _ in range(self.max_turns):
            reply = await policy.chat(messages)
            try:
                action = self._read(reply.text, env)
            except ValueError as error:
                rewards.append(0.0)
                messages = [*messages, reply, user(f"That is no action: {error}\n{shown}")]
                ctx.keep(score=_score(rewards))
                continue
            observation, reward, ended, cut, info = await asyncio.to_thread(env.step, action)
            rewards.append(float(reward))
            ctx.keep(score=_score(rewards))
            if ended:
                return Outcome(score=_score(rewards))
            if cut:
                return Outcome(status="truncated", reason="the environment's own limit")
            shown = self._shown(observation, info)
            messages = [*messages, reply, user(shown)]
        return Outcome(status="truncated", reason=f"no end after {self.max_turns} turns")

    def _made(self) -> Any:
        if self.make is not None:
            return self.make.load()(**self.options)
        try:
            import gymnasium
        except ImportError as error:
            raise EnvironmentFailure(
                f"environments by name need gymnasium: {error}",
                fix="pip install 'training-gym[gymnasium]'",
            ) from error
        if self.id is None:
            raise EnvironmentFailure("no environment is named", fix="give id=… or make=…")
        return gymnasium.make(self.id, **self.options)

    def _shown(self, observation: Any, info: dict[str, Any]) -> str:
        if self.shown_by is not None:
            return str(self.shown_by.load()(observation, info))
        return observation if isinstance(observation, str) else _as_json(observation)

    def _read(self, text: str, env: Any) -> Any:
        if self.read_by is not None:
            return self.read_by.load()(text, env)
        return read_action(text, env.action_space)


def read_action(text: str, space: Any) -> Any:
    """The action in a text; raises `ValueError` with words for the policy.

    Spaces of text take the whole answer, those of one number its last number, others its last JSON
    list, in the space's own shape.
    """
    kind = type(space).__name__
    if kind == "Text":
        action: Any = text.strip()
    elif kind == "Discrete":
        numbers = re.findall(r"-?\d+", text)
        if not numbers:
            raise ValueError("give one whole number")
        action = int(numbers[-1])
    else:
        lists = re.findall(r"\[[^\[\]]*\]", text)
        numbers = re.findall(r"-?\d+(?:\.\d+)?", lists[-1] if lists else text)
        if not numbers:
            raise ValueError("give a list of numbers")
        action = space.dtype.type(0) + [float(number) for number in numbers]
        action = action.astype(space.dtype)
        if action.shape != space.shape and action.size == 1 and space.shape == ():
            action = action[0]
    if not space.contains(action):
        raise ValueError(f"{action} is not in {space}")
    return action


def _score(rewards: list[float]) -> Score:
    return Score(value=sum(rewards), turns=tuple(rewards))


def _as_json(value: Any) -> str:
    """Arrays and numpy's numbers as plain lists and numbers."""
    plain = pydantic_core.to_json(value, fallback=_plain, inf_nan_mode="strings")
    return json.dumps(json.loads(plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
