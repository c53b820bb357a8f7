"""What is set up or loaded before the parts of a run are put together."""

from __future__ import annotations

from typing import Any

import torch

from training_gym.environments.single_turn import SingleTurn
from training_gym.spec.code import Code
from training_gym.spec.environment import Environment
from training_gym.spec.errors import GymError
from training_gym.spec.plan import Plan


def prepare_torch(plan: Plan) -> None:
    """Threads and determinism, before any tensor is made."""
    engine = plan.run.recipe.engine
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    torch.manual_seed(plan.run.recipe.seed)
    if engine.deterministic and engine.device == "cpu":
        torch.use_deterministic_algorithms(True)
        # Otherwise every new tensor is filled with NaN first, which costs and proves nothing here.
        vars(torch.utils)["deterministic"].fill_uninitialized_memory = False


def load_environment(code: Code | None) -> Environment:
    """The environment that `code` names; None: single turn."""
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
