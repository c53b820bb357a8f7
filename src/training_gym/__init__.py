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
    "spec.drift": ("DriftLimits",),
    "spec.recipe": ("Recipe", "Lora", "AdamW", "CheckpointPolicy", "LocalEngine", "Vllm"),
    "spec.algorithms": (
        "CISPO",
        "DAPO",
        "DPO",
        "Distill",
        "DrGRPO",
        "FullVocabulary",
        "GRPO",
        "GSPO",
        "PPO",
        "RLOO",
        "ReinforcePlusPlus",
        "SFT",
        "SampledTokens",
        "SimPO",
    ),
    "spec.loss_terms": ("IcePop", "LossKL", "MIS", "RewardKL", "TIS"),
    "spec.datasets": ("HuggingFaceDataset", "FileDataset", "GeneratedDataset", "HarborDataset"),
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
    "CISPO",
    "DAPO",
    "DPO",
    "GRPO",
    "GSPO",
    "MIS",
    "PPO",
    "RLOO",
    "SFT",
    "TIS",
    "AdamW",
    "Bounds",
    "CheckpointPolicy",
    "Context",
    "Distill",
    "DrGRPO",
    "DriftLimits",
    "Environment",
    "Episode",
    "Eval",
    "FileDataset",
    "FullVocabulary",
    "GeneratedDataset",
    "GymError",
    "HarborDataset",
    "Health",
    "HuggingFaceDataset",
    "IcePop",
    "LocalEngine",
    "LocalTarget",
    "Lora",
    "LossKL",
    "Message",
    "Outcome",
    "Policy",
    "Recipe",
    "ReinforcePlusPlus",
    "RewardKL",
    "Run",
    "RunSpec",
    "SampledTokens",
    "Sampling",
    "Score",
    "SimPO",
    "Task",
    "Thresholds",
    "TrainConfig",
    "Trajectory",
    "Vllm",
    "Webhook",
    "__version__",
    "group_reward",
    "weighted",
]

if TYPE_CHECKING:
    from training_gym.launch import Run, TrainConfig
    from training_gym.spec.algorithms import (
        CISPO,
        DAPO,
        DPO,
        GRPO,
        GSPO,
        PPO,
        RLOO,
        SFT,
        Distill,
        DrGRPO,
        FullVocabulary,
        ReinforcePlusPlus,
        SampledTokens,
        SimPO,
    )
    from training_gym.spec.compute import LocalTarget
    from training_gym.spec.datasets import (
        FileDataset,
        GeneratedDataset,
        HarborDataset,
        HuggingFaceDataset,
    )
    from training_gym.spec.drift import DriftLimits
    from training_gym.spec.environment import Context, Environment, Policy
    from training_gym.spec.episodes import Episode, Outcome, Score, Trajectory
    from training_gym.spec.errors import GymError
    from training_gym.spec.health import Bounds, Health, Thresholds, Webhook
    from training_gym.spec.loss_terms import MIS, TIS, IcePop, LossKL, RewardKL
    from training_gym.spec.messages import Message
    from training_gym.spec.recipe import AdamW, CheckpointPolicy, LocalEngine, Lora, Recipe, Vllm
    from training_gym.spec.rewards import group_reward, weighted
    from training_gym.spec.run import Eval, RunSpec
    from training_gym.spec.sampling import Sampling
    from training_gym.spec.tasks import Task


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'training_gym' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"training_gym.{_HOME[name]}"), name)
    if hasattr(value, "model_rebuild"):  # a signature, for `help`, comes with its validator
        value.model_rebuild()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
