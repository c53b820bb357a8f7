"""What an environment may use besides its policy, for one episode."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from pydantic import JsonValue

from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.limited import LimitedPolicy
from training_gym.rollouts.services import Services
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Policy, Served
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.sandboxes import Sandbox, SandboxSpec


class EpisodeContext:
    """Implements `spec.environment.Context` for one episode."""

    def __init__(
        self,
        seed: int,
        attempt: Attempt,
        *,
        timeout_s: float,
        policies: Callable[[str], LimitedPolicy],
        services: Services,
    ):
        """Random numbers depend on `seed` and the attempt's place only."""
        self.rng = random.Random(f"{seed}/{attempt.place}")
        self._attempt = attempt
        self._services = services
        self._lines: list[dict[str, Any]] = []
        self._kept: dict[str, JsonValue] = {}
        self._score: Score | None = None
        self._ends = time.monotonic() + timeout_s
        self._policies = policies

    @property
    def deadline_s(self) -> float:
        """See `spec.environment.Context`."""
        return max(self._ends - time.monotonic(), 0.0)

    def policy(self, agent: str) -> Policy:
        """See `spec.environment.Context`."""
        return self._policies(agent)

    def fixed(self, model: str | Endpoint) -> Policy:
        """See `spec.environment.Context`."""
        return self._services.fixed.policy(model, self._attempt)

    def sandbox(
        self, spec: SandboxSpec | None = None, *, provider: str = "local"
    ) -> AbstractAsyncContextManager[Sandbox]:
        """See `spec.environment.Context`."""
        return self._services.sandboxes.lend(spec, provider=provider)

    def serve(
        self, agent: str = "policy", *, tolerated: Collection[str] = ()
    ) -> AbstractAsyncContextManager[Served]:
        """See `spec.environment.Context`."""
        policy = self._policies(agent)
        return self._services.gateway.serve(
            policy,
            name=f"{self._attempt.id}.{agent}",
            tolerated=tolerated,
            sampling=policy.sampling,
        )

    def keep(
        self, artifacts: Mapping[str, JsonValue] | None = None, *, score: Score | None = None
    ) -> None:
        """See `spec.environment.Context`."""
        self._score = score or self._score
        self._kept |= artifacts or {}

    def log(self, message: str, **fields: Any) -> None:
        """See `spec.environment.Context`."""
        self._lines.append({"message": message, **fields})

    def completed(self, outcome: Outcome) -> Outcome:
        """The outcome with what was kept and logged, as far as it does not say so itself."""
        artifacts = {**self._kept, **outcome.artifacts}
        if self._lines:
            artifacts["log"] = list[JsonValue](self._lines)
        changes: dict[str, Any] = {"artifacts": artifacts} if artifacts else {}
        judged = outcome.status != "infrastructure_failed"
        if judged and outcome.score is None and self._score is not None:
            changes["score"] = self._score
        return outcome.changed(**changes) if changes else outcome
