"""What is set up or loaded before the parts of a run are put together."""

from __future__ import annotations

import torch

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
