"""Training Gym: a model, tasks and a reward function become a trained policy.

The names below are the public API. They are imported when first used, so that
`import training_gym` loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_PUBLIC = {
    "launch": ("TrainConfig", "Run"),
    "spec.recipe": ("Recipe", "Lora", "AdamW", "CheckpointPolicy", "LocalEngine"),
    "spec.algorithms": ("GRPO", "DrGRPO", "DAPO", "SFT"),
    "spec.datasets": ("HuggingFaceDataset", "FileDataset", "GeneratedDataset"),
    "spec.run": ("Eval", "RunSpec"),
    "spec.rewards": ("group_reward", "weighted"),
    "spec.episodes": ("Episode", "Outcome", "Score", "Trajectory"),
    "spec.environment": ("Context", "Environment", "Policy"),
    "spec.messages": ("Message",),
    "spec.sampling": ("Sampling",),
    "spec.tasks": ("Task",),
    "spec.compute": ("LocalTarget",),
    "spec.errors": ("GymError",),
    "spec.health": ("Health", "Thresholds", "Bounds", "Webhook"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "DAPO",
    "GRPO",
    "SFT",
    "AdamW",
    "Bounds",
    "CheckpointPolicy",
    "Context",
    "DrGRPO",
    "Environment",
    "Episode",
    "Eval",
    "FileDataset",
    "GeneratedDataset",
    "GymError",
    "Health",
    "HuggingFaceDataset",
    "LocalEngine",
    "LocalTarget",
    "Lora",
    "Message",
    "Outcome",
    "Policy",
    "Recipe",
    "Run",
    "RunSpec",
    "Sampling",
    "Score",
    "Task",
    "Thresholds",
    "TrainConfig",
    "Trajectory",
    "Webhook",
    "__version__",
    "group_reward",
    "weighted",
]

if TYPE_CHECKING:
    from training_gym.launch import Run, TrainConfig
    from training_gym.spec.algorithms import DAPO, GRPO, SFT, DrGRPO
    from training_gym.spec.compute import LocalTarget
    from training_gym.spec.datasets import FileDataset, GeneratedDataset, HuggingFaceDataset
    from training_gym.spec.environment import Context, Environment, Policy
    from training_gym.spec.episodes import Episode, Outcome, Score, Trajectory
    from training_gym.spec.errors import GymError
    from training_gym.spec.health import Bounds, Health, Thresholds, Webhook
    from training_gym.spec.messages import Message
    from training_gym.spec.recipe import AdamW, CheckpointPolicy, LocalEngine, Lora, Recipe
    from training_gym.spec.rewards import group_reward, weighted
    from training_gym.spec.run import Eval, RunSpec
    from training_gym.spec.sampling import Sampling
    from training_gym.spec.tasks import Task


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'training_gym' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"training_gym.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
