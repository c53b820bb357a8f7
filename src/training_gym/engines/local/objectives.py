"""From an algorithm to what the trainer differentiates on each micro-batch."""

from __future__ import annotations

from typing import Protocol

import torch

from training_gym.engines.local.answer_objectives import FullDistillation, Imitation, Preferences
from training_gym.engines.local.companions import Scorer
from training_gym.engines.local.head import LossParts
from training_gym.engines.local.packing import MicroBatch
from training_gym.engines.local.policy_objective import PolicyImprovement
from training_gym.engines.local.value_head import ValueHead
from training_gym.spec.algorithms import (
    DPO,
    GRPO,
    PPO,
    SFT,
    Aggregation,
    Distill,
    FullVocabulary,
    SimPO,
)
from training_gym.spec.engine import Column
from training_gym.spec.recipe import Recipe


class Objective(Protocol):
    """What one algorithm minimises."""

    aggregation: Aggregation
    temperature: float
    """Logits are divided by it: that of the distribution which was sampled from."""
    together: int
    """Rows that are compared with each other, and so travel together."""

    def parts(self, micro: MicroBatch) -> LossParts:
        """The micro-batch's share of the loss."""
        ...

    def measure(self, micro: MicroBatch, logprobs: torch.Tensor) -> dict[str, float]:
        """Metrics of all targets of an update, their columns put together in one micro-batch."""
        ...


def objective_for(
    recipe: Recipe, *, value_head: ValueHead | None, teacher: Scorer | None
) -> Objective:
    """The objective of the recipe's algorithm."""
    algorithm = recipe.algorithm
    temperature = recipe.sampling.temperature
    if isinstance(algorithm, SFT):
        return Imitation()
    if isinstance(algorithm, DPO | SimPO):
        return Preferences(algorithm)
    if not isinstance(algorithm, Distill):
        return PolicyImprovement(algorithm, temperature, value_head)
    if isinstance(algorithm.loss, FullVocabulary):
        assert teacher is not None, "distillation has a teacher"
        return FullDistillation(algorithm.loss, temperature, teacher)
    clips = {"clip_low": algorithm.loss.clip_low, "clip_high": algorithm.loss.clip_high}
    return PolicyImprovement(GRPO(aggregation="token_mean", **clips), temperature, None)


def columns_before_training(recipe: Recipe) -> tuple[Column, ...]:
    """What has to be computed of a batch's tokens before its first update."""
    algorithm = recipe.algorithm
    if isinstance(algorithm, DPO):
        return ("reference_logprobs",)
    if isinstance(algorithm, Distill):
        return () if isinstance(algorithm.loss, FullVocabulary) else ("reference_logprobs",)
    if isinstance(algorithm, SFT | SimPO):
        return ()
    needed: list[Column] = []
    correction = algorithm.correction
    if correction is not None:
        by_sequence = getattr(correction, "level", "token") == "sequence"
        if recipe.updates_per_batch > 1 or by_sequence:
            needed.append("old_logprobs")
    if algorithm.kl is not None:
        needed.append("reference_logprobs")
    if isinstance(algorithm, PPO):
        needed.append("values")
    return tuple(needed)
