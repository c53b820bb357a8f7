"""A policy that says given texts, and a context without a run: environments tested by themselves.

```python
policy, ctx = ScriptedPolicy("7", "9"), PlainContext()
outcome = asyncio.run(MyEnvironment().run(task, policy, ctx))
```
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Policy
from training_gym.spec.episodes import Score
from training_gym.spec.messages import Message, ToolSpec, assistant
from training_gym.spec.sampling import Sampling
from training_gym.spec.sandboxes import Sandbox, SandboxProvider, SandboxSpec


class ScriptedPolicy:
    """Implements `spec.environment.Policy`: says its texts or messages in order."""

    def __init__(self, *script: str | Message) -> None:
        """`AssertionError` is raised when it is asked once more than there are answers."""
        self._script = list(script)
        self.asked: list[list[Message] | str] = []
        """Every conversation or text it was given."""
        self.tools: list[tuple[ToolSpec, ...]] = []
        """The tools that came with each conversation."""

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
    ) -> Message:
        """The next answer."""
        self.asked.append(list(messages))
        self.tools.append(tuple(tools))
        return self._next()

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        """The next answer."""
        self.asked.append(text)
        return self._next()

    def _next(self) -> Message:
        if not self._script:
            raise AssertionError(f"the script has no answer number {len(self.asked)}")
        answer = self._script.pop(0)
        return assistant(answer) if isinstance(answer, str) else answer


class PlainContext:
    """Implements `spec.environment.Context` without a run around it."""

    def __init__(
        self,
        seed: int = 0,
        *,
        agents: Mapping[str, Policy] | None = None,
        provider: SandboxProvider | None = None,
    ) -> None:
        """Other agents by name, and who makes sandboxes, where there shall be any."""
        self.rng = random.Random(seed)
        self.deadline_s = 600.0
        self.lines: list[dict[str, Any]] = []
        self.kept: dict[str, JsonValue] = {}
        self.score: Score | None = None
        self._agents = dict(agents or {})
        self._provider = provider

    def policy(self, agent: str) -> Policy:
        """One of the agents given."""
        return self._agents[agent]

    def fixed(self, model: str | Endpoint) -> Policy:
        """One of the agents given, by the model's name."""
        return self._agents[model if isinstance(model, str) else model.model]

    @contextlib.asynccontextmanager
    async def sandbox(
        self, spec: SandboxSpec | None = None, *, provider: str = "local"
    ) -> AsyncIterator[Sandbox]:
        """A sandbox of the provider that was given, whatever it is called."""
        assert self._provider is not None, "PlainContext was given no provider"
        async with await self._provider.create(spec or SandboxSpec()) as sandbox:
            yield sandbox

    def keep(
        self, artifacts: Mapping[str, JsonValue] | None = None, *, score: Score | None = None
    ) -> None:
        """Remember it."""
        self.score = score or self.score
        self.kept |= artifacts or {}

    def log(self, message: str, **fields: Any) -> None:
        """Remember it."""
        self.lines.append({"message": message, **fields})
