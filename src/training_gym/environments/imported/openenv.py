"""Environments of OpenEnv, through its own client: a server holds them, episodes are sessions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pydantic_core
from pydantic import Field, PrivateAttr

from training_gym.environments.opening import opening
from training_gym.spec.code import CodeRef
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.messages import user
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task


class OpenEnvEnvironment(Settings):
    """Plays an OpenEnv server by text: observations are shown, actions are read.

    An answer becomes the field `action` of the action; without one, its JSON object is the action.
    What is none is told so and costs a turn. The sum of the rewards is the score. An environment
    whose server is gone fails for infrastructure's reasons.
    """

    url: str
    """The server's address, such as `http://127.0.0.1:8000`."""
    client: CodeRef | None = None
    """An environment's own client class; None: OpenEnv's generic one, of plain dictionaries."""
    action: str | None = "message"
    """The field that takes an answer's text; None: answers are JSON objects."""
    shown_by: CodeRef | None = None
    """`(observation) -> str`: how an observation is shown; else its only text, or it as JSON."""
    read_by: CodeRef | None = None
    """`(text) -> action`: how an answer is read; a `ValueError`'s words go to the policy."""
    reset: tuple[str, ...] = ()
    """Columns of the task's row that `reset` is given; `seed` it is given always."""
    instructions: str = ""
    """Said before the first observation."""
    max_turns: int = Field(32, ge=1)
    """Answers after which the episode is truncated."""
    sessions: int = Field(1, ge=1)
    """Sessions that the server grants at once; further episodes wait for one."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds for one step of the environment."""

    _room: Any = PrivateAttr(None)

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Reset, then step until it is done."""
        made = self._made()
        if self._room is None:
            self._room = asyncio.Semaphore(self.sessions)
        async with self._room:
            try:
                session = await made.__aenter__()
            except Exception as error:  # boundary: a client fails as its transport does
                raise self._unreachable(error) from error
            try:
                return await self._play(session, task, policy, ctx)
            finally:
                await made.__aexit__(None, None, None)

    async def _play(self, session: Any, task: Task, policy: Policy, ctx: Context) -> Outcome:
        given = {name: task.metadata[name] for name in self.reset if name in task.metadata}
        seed = task.metadata.get("seed")
        given["seed"] = seed if isinstance(seed, int) else ctx.rng.randrange(2**31)
        result = await self._asked(session.reset(**given))
        messages = opening(task, f"{self.instructions}\n{self._shown(result)}".strip())
        rewards: list[float] = []
        while not result.done:
            if len(rewards) == self.max_turns:
                reason = f"no end after {self.max_turns} turns"
                return Outcome(status="truncated", reason=reason, score=_score(rewards))
            reply = await policy.chat(messages)
            try:
                action = self._read(reply.text)
            except ValueError as error:
                rewards.append(0.0)
                said = f"That is no action: {error}"
            else:
                result = await self._asked(session.step(action))
                rewards.append(float(result.reward or 0.0))
                said = self._shown(result)
            ctx.keep(score=_score(rewards))
            messages = [*messages, reply, user(said)]
        return Outcome(score=_score(rewards))

    async def _asked(self, request: Any) -> Any:
        try:
            return await request
        except Exception as error:  # boundary: a client fails as its transport does
            raise self._unreachable(error) from error

    def _made(self) -> Any:
        try:
            from openenv.core import GenericEnvClient
        except ImportError as error:
            raise EnvironmentFailure(
                f"environments of OpenEnv need its package: {error}", fix="pip install openenv"
            ) from error
        kind = GenericEnvClient if self.client is None else self.client.load()
        return kind(base_url=self.url, message_timeout_s=self.timeout_s)

    def _unreachable(self, error: Exception) -> EnvironmentFailure:
        return EnvironmentFailure(
            f"the OpenEnv server at {self.url} failed: {type(error).__name__}: {error}",
            fix="check that it runs, and that `sessions` is no more than it grants",
        )

    def _shown(self, result: Any) -> str:
        if self.shown_by is not None:
            return str(self.shown_by.load()(result.observation))
        plain = json.loads(pydantic_core.to_json(result.observation, fallback=str))
        if isinstance(plain, dict):
            texts = [value for value in plain.values() if isinstance(value, str) and value]
            if len(texts) == 1:
                return texts[0]
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def _read(self, text: str) -> Any:
        if self.read_by is not None:
            return self.read_by.load()(text)
        if self.action is not None:
            return {self.action: text.strip()}
        begin, end = text.find("{"), text.rfind("}")
        action = json.loads(text[begin : end + 1]) if begin >= 0 else None
        if not isinstance(action, dict):
            raise ValueError("give one JSON object")
        return action


def _score(rewards: list[float]) -> Score:
    return Score(value=sum(rewards), turns=tuple(rewards))
