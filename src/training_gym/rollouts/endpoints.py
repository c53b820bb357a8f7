"""Models behind addresses: as opponents and simulated users, or as what plays the episodes."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.models.endpoint import EndpointPolicy
from training_gym.rollouts.attempts import Attempt
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Policy
from training_gym.spec.episodes import Fidelity, Trajectory
from training_gym.spec.errors import EngineError
from training_gym.spec.sampling import Sampling


class Endpoints:
    """Implements `FixedModels` for addresses; connections are shared by all episodes."""

    def __init__(self) -> None:
        """Nothing is connected yet."""
        self._policies: dict[Endpoint, EndpointPolicy] = {}

    def policy(self, model: str | Endpoint, attempt: Attempt) -> Policy:
        """See `FixedModels`."""
        if isinstance(model, str):
            raise EngineError(
                f"no model {model!r} can be loaded beside this one",
                fix="serve it, and give its address: Endpoint(base_url=…, model=…)",
            )
        if model not in self._policies:
            self._policies[model] = EndpointPolicy(model)
        return self._policies[model]

    async def close(self) -> None:
        """End the connections."""
        policies, self._policies = self._policies, {}
        for policy in policies.values():
            await policy.aclose()


class EndpointPlayers:
    """Implements `Players`: every agent of every episode is one server's model."""

    def __init__(self, policy: EndpointPolicy) -> None:
        """The connections stay their caller's."""
        self._policy = policy

    def seats(self, attempt: Attempt, sampling: Sampling) -> EndpointSeats:
        """See `Players`."""
        return EndpointSeats(self._policy, sampling)


class EndpointSeats:
    """Implements `Seats` without a record of tokens."""

    records_tokens = False
    forks = 0
    fidelity: Sequence[Fidelity] = ()

    def __init__(self, policy: EndpointPolicy, sampling: Sampling) -> None:
        """Ask with `sampling` where the environment does not say."""
        self._policy = policy
        self._sampling = sampling

    def policy(self, agent: str) -> EndpointPolicy:
        """See `Seats`."""
        return self._policy.alone(self._sampling)

    def trajectories(self) -> Sequence[Trajectory]:
        """See `Seats`."""
        return ()
