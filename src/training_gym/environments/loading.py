"""From a reference to an environment that can be played."""

from __future__ import annotations

from typing import Any

from training_gym.environments.single_turn import SingleTurn
from training_gym.spec.code import Code
from training_gym.spec.environment import Environment
from training_gym.spec.errors import GymError


def load_environment(code: Code | None) -> Environment:
    """The environment that `code` names; None: single turn. Raises `GymError` if it is none."""
    if code is None:
        return SingleTurn()
    loaded: Any = code.load()
    made = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(made, Environment):
        raise GymError(
            f"{code.ref} has no method run(task, policy, ctx)",
            fix="write an environment as a class with async def run(self, task, policy, ctx)",
        )
    return made
