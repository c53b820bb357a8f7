"""What is optimised, as values. The mathematics lies in `training_gym.algorithms`.

A field exists only where its algorithm heeds it; docs/algorithms.md has them side by side.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from training_gym.spec.loss_terms import KL, Correction
from training_gym.spec.settings import Settings

Aggregation = Literal["sequence_mean", "token_mean", "constant"]

RatioLevel = Literal["token", "sequence_mean", "sequence_product"]
"""Whose probability the ratio compares: a token's, or all of a trajectory's (geometric mean, or
product)."""


class PolicyGradient(Settings):
    """What all that learn from the rewards of their own episodes have in common."""

    ratio: ClassVar[RatioLevel] = "token"

    passes: int = Field(1, ge=1, le=10**4)
    """Times each batch is learned from (μ in GRPO's algorithm 1, epochs in PPO)."""
    kl: KL | None = None
    """`LossKL` or `RewardKL`; None: no reference policy."""
    correction: Correction | None = None
    """`TIS`, `MIS` or `IcePop`: how tokens count that trainer and sampler see differently; None:
    the clipped ratio is that of the policy to the sampler."""
    entropy_coefficient: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of the policy's entropy, which is taken from the loss (Mnih et al. 2016,
    arXiv:1602.01783, section 4)."""


class Clipped(PolicyGradient):
    """Probability ratios are clipped (Schulman et al. 2017, arXiv:1707.06347, equation 7)."""

    clip_low: float = Field(0.2, gt=0, allow_inf_nan=False)
    """Probability ratios below 1 - clip_low are clipped."""
    clip_high: float = Field(0.2, gt=0, allow_inf_nan=False)
    """Probability ratios above 1 + clip_high are clipped."""
    dual_clip: float | None = Field(None, gt=1, allow_inf_nan=False)
    """With a negative advantage ratios count as no more than this (Ye et al. 2020,
    arXiv:1912.09729, equation 5); None: no such bound."""

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Clipped:
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(f"dual_clip {self.dual_clip:g} is not above 1 + clip_high")
        return self


class GroupCompared(PolicyGradient):
    """An episode's advantage comes from comparing it with the others of its group."""

    skip_equal_groups: bool = True
    """Leave out groups whose rewards are all equal; the loss is a mean over the others."""


class GRPO(Clipped, GroupCompared):
    """Group Relative Policy Optimization (Shao et al. 2024, arXiv:2402.03300)."""

    kind: Literal["grpo"] = "grpo"
    normalize_by_std: bool = True
    """Divide a group's advantages by their standard deviation."""
    aggregation: Aggregation = "sequence_mean"
    """`sequence_mean`: every episode weighs the same; `token_mean`: every token; `constant`: sum
    over `max_response_tokens`."""


class DrGRPO(Clipped, GroupCompared):
    """GRPO without its length and difficulty biases (Liu et al. 2025, arXiv:2503.20783)."""

    kind: Literal["dr_grpo"] = "dr_grpo"
    normalize_by_std: bool = False
    aggregation: Aggregation = "constant"


class DAPO(Clipped, GroupCompared):
    """Clip-higher, token-level loss, dynamic sampling and overlong shaping (arXiv:2503.14476)."""

    kind: Literal["dapo"] = "dapo"
    clip_high: float = Field(0.28, gt=0, allow_inf_nan=False)
    normalize_by_std: bool = True
    aggregation: Aggregation = "token_mean"
    dynamic_sampling: bool = True
    """Draw further groups until the batch is full of groups whose rewards differ."""
    max_resampled_batches: int = Field(3, ge=1)
    """Give up dynamic sampling after so many batches' worth of groups in one step."""
    overlong_buffer_tokens: int = Field(0, ge=0)
    """Answers within so many tokens of the limit lose reward linearly, up to the penalty."""
    overlong_penalty: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Reward that an answer at the limit has lost."""

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> DAPO:
        if self.dynamic_sampling and not self.skip_equal_groups:
            raise ValueError(
                "dynamic_sampling replaces groups of equal rewards, skip_equal_groups=False keeps "
                "them: set one of the two"
            )
        if self.overlong_buffer_tokens == 0 and self.overlong_penalty != 1.0:
            raise ValueError("overlong_penalty has no effect without overlong_buffer_tokens")
        if not self.dynamic_sampling and self.max_resampled_batches != 3:
            raise ValueError("max_resampled_batches has no effect without dynamic_sampling")
        return self


class GSPO(Clipped, GroupCompared):
    """Group Sequence Policy Optimization (Zheng et al. 2025, arXiv:2507.18071).

    One ratio a trajectory: the geometric mean of its tokens'.
    """

    ratio: ClassVar[RatioLevel] = "sequence_mean"
    aggregation: ClassVar[Aggregation] = "sequence_mean"

    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(3e-4, gt=0, allow_inf_nan=False)
    clip_high: float = Field(4e-4, gt=0, allow_inf_nan=False)
    normalize_by_std: bool = True


class CISPO(GroupCompared):
    """Bounded importance weights that never stop a gradient (MiniMax-M1, arXiv:2506.13585)."""

    kind: Literal["cispo"] = "cispo"
    ratio_max: float = Field(5.0, gt=1, allow_inf_nan=False)
    """A token's weight, its probability ratio, counts as no more than this (1 + ε_high)."""
    normalize_by_std: bool = True
    aggregation: Aggregation = "token_mean"


class RLOO(Clipped, GroupCompared):
    """REINFORCE Leave-One-Out (Ahmadian et al. 2024, arXiv:2402.14740).

    The baseline is the mean of the group's other episodes; a whole answer is one action.
    """

    ratio: ClassVar[RatioLevel] = "sequence_product"
    aggregation: ClassVar[Aggregation] = "sequence_mean"

    kind: Literal["rloo"] = "rloo"


class ReinforcePlusPlus(Clipped):
    """REINFORCE++: advantages normalised over the whole batch (Hu et al. 2025, arXiv:2501.03262).

    Needs no groups; with `group_baseline` it is the paper's REINFORCE++-baseline.
    """

    kind: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    group_baseline: bool = False
    """Take the group's mean from each reward before the batch is normalised."""
    aggregation: Aggregation = "token_mean"


class PPO(Clipped):
    """Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347).

    With a value head on the policy; advantages by GAE (Schulman et al. 2015, arXiv:1506.02438).
    """

    kind: Literal["ppo"] = "ppo"
    discount: float = Field(1.0, gt=0, le=1)
    """Worth of a reward one token later (γ)."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """1: returns alone, unbiased; lower: more of the value head's estimate, less variance (λ)."""
    normalize_advantages: bool = True
    """Over the batch's tokens, to mean 0 and standard deviation 1."""
    aggregation: Aggregation = "token_mean"
    value_clip: float | None = Field(0.2, gt=0, allow_inf_nan=False)
    """A value counts as no further than this from the one before the batch; None: no bound."""
    value_coefficient: float = Field(0.1, ge=0, allow_inf_nan=False)
    """How much the value loss moves the policy's own layers; 0: it trains the head alone."""
    value_learning_rate: float = Field(1e-3, gt=0, allow_inf_nan=False)
    """Of the head, which starts at zero; schedule and moments are the optimizer's."""


class SampledTokens(Settings):
    """Reverse KL on the sampled tokens, as their advantage (Lu 2025, "On-policy distillation").

    The teacher may have another tokenizer: spans of text that both cut alike are then compared.
    """

    kind: Literal["sampled_tokens"] = "sampled_tokens"
    clip_low: float = Field(0.2, gt=0, allow_inf_nan=False)
    clip_high: float = Field(0.2, gt=0, allow_inf_nan=False)


class FullVocabulary(Settings):
    """Divergence of whole distributions (Agarwal et al. 2023, arXiv:2306.13649, equation 1).

    At every sampled token; teacher and student must share a tokenizer.
    """

    kind: Literal["full_vocabulary"] = "full_vocabulary"
    mixture: float = Field(1.0, ge=0, le=1)
    """1: reverse KL(student ‖ teacher); 0: forward KL(teacher ‖ student); between them the
    generalised Jensen-Shannon divergence (β of the paper)."""


class Distill(Settings):
    """On-policy distillation: the student answers, a teacher says how it would have.

    Agarwal et al. 2023, arXiv:2306.13649; Gu et al. 2023, arXiv:2306.08543.
    """

    kind: Literal["distill"] = "distill"
    teacher: str
    """Catalogue name, Hugging Face id, local folder or GGUF file."""
    loss: Annotated[SampledTokens | FullVocabulary, Field(discriminator="kind")] = Field(
        default_factory=SampledTokens
    )


class GivenAnswers(Settings):
    """What all that learn from answers in the data, and play no episodes to learn, share."""


class SFT(GivenAnswers):
    """Supervised fine-tuning: maximum likelihood of the task's answer."""

    kind: Literal["sft"] = "sft"


class Preference(GivenAnswers):
    """Learns from pairs of a chosen and a rejected answer."""


class DPO(Preference):
    """Direct Preference Optimization (Rafailov et al. 2023, arXiv:2305.18290)."""

    kind: Literal["dpo"] = "dpo"
    beta: float = Field(0.1, gt=0, allow_inf_nan=False)
    """How near to the reference; with `ipo` 1 / (2 β) is the margin aimed at."""
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    """`ipo`: squared distance to a margin (Azar et al. 2023, arXiv:2310.12036, equation 17)."""
    length_normalized: bool = False
    """Compare means over an answer's tokens instead of sums (LN-DPO, arXiv:2411.15124)."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Share of pairs taken to be the wrong way round (Mitchell 2023, "A note on DPO with noisy
    preferences")."""
    reference: str | None = None
    """See `LossKL.reference`."""

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> DPO:
        if self.loss == "ipo" and self.label_smoothing:
            raise ValueError("label_smoothing has no effect with loss='ipo'")
        return self


class SimPO(Preference):
    """DPO without a reference, on mean log-probabilities (Meng et al. 2024, arXiv:2405.14734)."""

    kind: Literal["simpo"] = "simpo"
    beta: float = Field(2.0, gt=0, allow_inf_nan=False)
    margin: float = Field(1.0, ge=0, allow_inf_nan=False)
    """By how much the chosen answer shall win (γ)."""


PolicyAlgorithm = GRPO | DrGRPO | DAPO | GSPO | CISPO | RLOO | ReinforcePlusPlus | PPO

Algorithm = Annotated[
    PolicyAlgorithm | Distill | SFT | DPO | SimPO,
    Field(discriminator="kind"),
]

ALGORITHMS: tuple[type[Settings], ...] = (
    GRPO,
    DrGRPO,
    DAPO,
    GSPO,
    CISPO,
    RLOO,
    ReinforcePlusPlus,
    PPO,
    Distill,
    SFT,
    DPO,
    SimPO,
)
"""Every algorithm, in the order of the documentation."""


def needs_a_group(algorithm: Settings) -> bool:
    """Whether an episode alone in its group has no advantage."""
    if isinstance(algorithm, ReinforcePlusPlus):
        return algorithm.group_baseline
    return isinstance(algorithm, GroupCompared)
