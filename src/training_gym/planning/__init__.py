"""From a definition to a plan: pure arithmetic, no clock, environment, network or accelerator."""

from training_gym.planning.origins import origins_of
from training_gym.planning.overrides import apply_sets
from training_gym.planning.plan import make_plan

__all__ = ["apply_sets", "make_plan", "origins_of"]
