"""What episodes have in common: fixed models, warm sandboxes, the gateway; each made at need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.endpoints import Endpoints
from training_gym.rollouts.sandboxes import EpisodeSandboxes
from training_gym.rollouts.serving import EpisodeGateway
from training_gym.sandboxes import registry
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Policy
from training_gym.spec.sandboxes import SandboxProvider


class FixedModels(Protocol):
    """Models that stay as they are."""

    def policy(self, model: str | Endpoint, attempt: Attempt) -> Policy:
        """One of them, for one episode; raises `GymError` where there is no such model."""
        ...

    async def close(self) -> None:
        """Free them."""
        ...


class Services:
    """Shared by all episodes of a run, its evaluations included."""

    def __init__(
        self,
        *,
        fixed: FixedModels | None = None,
        provider: Callable[[str], SandboxProvider] = registry.find,
    ) -> None:
        """Nothing is started yet.

        Args:
            fixed: Knows fixed models; None: of those behind addresses only. Closed with the rest.
            provider: Makes a sandbox provider from its name.
        """
        self.fixed: FixedModels = fixed or Endpoints()
        self.sandboxes = EpisodeSandboxes(provider)
        self.gateway = EpisodeGateway()

    async def close(self) -> None:
        """End all of it."""
        await self.gateway.close()
        await self.sandboxes.close()
        await self.fixed.close()
