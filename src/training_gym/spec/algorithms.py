"""What is optimised, as values. The mathematics lies in `training_gym.algorithms`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from training_gym.spec.settings import Settings

Aggregation = Literal["sequence_mean", "token_mean", "constant"]


class PolicyGradient(Settings):
    """What group-based policy gradients have in common."""

    clip_low: float = Field(0.2, gt=0)
    """Probability ratios below 1 - clip_low are clipped."""
    clip_high: float = Field(0.2, gt=0)
    """Probability ratios above 1 + clip_high are clipped."""
    normalize_by_std: bool = True
    """Divide a group's advantages by their standard deviation."""
    aggregation: Aggregation = "sequence_mean"
    """`sequence_mean`: every episode weighs the same; `token_mean`: every token; `constant`: sum
    over `max_response_tokens`."""
    skip_equal_groups: bool = True
    """Leave out groups whose rewards are all equal; the loss is a mean over the others."""


class GRPO(PolicyGradient):
    """Group Relative Policy Optimization (Shao et al. 2024, arXiv:2402.03300)."""

    kind: Literal["grpo"] = "grpo"


class DrGRPO(PolicyGradient):
    """GRPO without its length and difficulty biases (Liu et al. 2025, arXiv:2503.20783)."""

    kind: Literal["dr_grpo"] = "dr_grpo"
    normalize_by_std: bool = False
    aggregation: Aggregation = "constant"


class DAPO(PolicyGradient):
    """Clip-higher, token-level loss, dynamic sampling and overlong shaping (arXiv:2503.14476)."""

    kind: Literal["dapo"] = "dapo"
    clip_high: float = Field(0.28, gt=0)
    aggregation: Aggregation = "token_mean"
    dynamic_sampling: bool = True
    """Draw further groups until the batch is full of groups whose rewards differ."""
    max_resampled_batches: int = Field(3, ge=1)
    """Give up dynamic sampling after so many batches' worth of groups in one step."""
    overlong_buffer_tokens: int = Field(0, ge=0)
    """Answers within so many tokens of the limit lose reward linearly, up to the penalty."""
    overlong_penalty: float = Field(1.0, ge=0)


class SFT(Settings):
    """Supervised fine-tuning: maximum likelihood of the task's answer."""

    kind: Literal["sft"] = "sft"


Algorithm = Annotated[GRPO | DrGRPO | DAPO | SFT, Field(discriminator="kind")]
