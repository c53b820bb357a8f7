"""The seams an episode is played through: policy, environment, context."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from pydantic import JsonValue

from training_gym.spec.endpoints import Endpoint
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.messages import Message, ToolSpec
from training_gym.spec.sampling import Sampling
from training_gym.spec.sandboxes import Sandbox, SandboxSpec
from training_gym.spec.tasks import Task


class Policy(Protocol):
    """A model as one can chat with it."""

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
    ) -> Message:
        """The next assistant message.

        Pass the whole conversation each time; what the policy has seen before is recognised and
        never encoded again.
        """
        ...

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        """Continue a raw text; the continuation comes back as an assistant message."""
        ...


class Served(Protocol):
    """A policy behind an address of its own, for agents that take a base URL and a key."""

    key: str
    """The secret of this episode and agent."""
    score: Score | None
    """The reward that the agent has posted."""
    requests: int
    """Requests answered so far."""

    @property
    def openai_url(self) -> str:
        """Base URL for clients of OpenAI's API."""
        ...

    @property
    def anthropic_url(self) -> str:
        """Base URL for clients of Anthropic's API."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which clients find server and key."""
        ...


class Context(Protocol):
    """What an environment may use besides its policy."""

    rng: random.Random
    """Random numbers that depend on seed, task and member only."""

    @property
    def deadline_s(self) -> float:
        """Seconds left before the episode is truncated."""
        ...

    def policy(self, agent: str) -> Policy:
        """The policy under training, recorded under another agent's name.

        Each agent has turns, a conversation and, in the outcome's score, a reward of its own.
        """
        ...

    def fixed(self, model: str | Endpoint) -> Policy:
        """A model that stays as it is: a simulated user, an opponent, an adviser.

        Named as a run names its model, or behind an address. Nothing it says is trained on.
        """
        ...

    def sandbox(
        self, spec: SandboxSpec | None = None, *, provider: str = "local"
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox that nobody used before, from `provider`'s warm pool; destroyed on leaving.

        None: the host's programs with the default limits. Raises `SandboxError` where there is
        none to be had.
        """
        ...

    def serve(
        self, agent: str = "policy", *, tolerated: Collection[str] = ()
    ) -> AbstractAsyncContextManager[Served]:
        """An agent's policy behind the gateway, until it is left.

        What is sampled there counts as if it had been asked here, limits included: one that was
        reached is raised on leaving. `tolerated` names parameters of requests that may be dropped
        although they ask for what the sampler cannot do.
        """
        ...

    def keep(
        self, artifacts: Mapping[str, JsonValue] | None = None, *, score: Score | None = None
    ) -> None:
        """Keep artifacts and score so far: they are the outcome's even if a limit ends it now.

        What the returned outcome says itself comes first.
        """
        ...

    def log(self, message: str, **fields: Any) -> None:
        """Keep a line with the episode."""
        ...


@runtime_checkable
class Environment(Protocol):
    """Plays one episode. Free-form async code; raise for infrastructure failures."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Talk to `policy` until the task is done and say how it ended."""
        ...
