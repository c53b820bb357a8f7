"""Terms an algorithm's loss may have beside its own: nearness to a reference, corrections."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from training_gym.spec.settings import Settings

KLEstimator = Literal["k1", "k2", "k3"]
"""Estimates of KL(policy ‖ reference) from one token, with r = reference / policy: k1 = -log r,
k2 = (log r)² / 2, k3 = r - 1 - log r (Schulman 2020, "Approximating KL divergence")."""

CorrectionLevel = Literal["token", "sequence"]


class _KL(Settings):
    """What both places of a KL term have in common."""

    coefficient: float = Field(1e-3, gt=0, allow_inf_nan=False)
    """Weight of the term (β)."""
    reference: str | None = None
    """Model to stay near; None: what training started from. Under an adapter that is the model
    beneath it, computed with the adapter off, so that nothing more is held in memory."""


class RewardKL(_KL):
    """KL to the reference taken from the reward (Ouyang et al. 2022, arXiv:2203.02155, eq. 2).

    Where a baseline is made of whole episodes (GRPO and its kin, RLOO) the sum over an episode's
    tokens is taken from its reward; PPO and REINFORCE++ take each token's from its own reward.
    """

    kind: Literal["reward"] = "reward"
    estimator: KLEstimator = "k1"
    """Only k1 in the reward gives the gradient of the reverse KL (arXiv:2506.09477); k2 and k3
    estimate its value, and their gradient is another one."""


class LossKL(_KL):
    """KL to the reference added to the loss, token by token."""

    kind: Literal["loss"] = "loss"
    estimator: KLEstimator = "k3"
    """All three are right with `exact`; k3 varies least where the policies are near."""
    gradient: Literal["exact", "plain"] = "exact"
    """`exact`: weighted with the ratio of policy and sampler, so that the expected gradient is that
    of the reverse KL with every estimator, off-policy too (as in DeepSeek-V3.2, arXiv:2512.02556);
    `plain`: differentiated as it stands, as in GRPO's paper: k3 then follows the forward KL."""

    @model_validator(mode="after")
    def _has_a_gradient(self) -> LossKL:
        if self.estimator == "k1" and self.gradient == "plain":
            raise ValueError(
                "the expected gradient of k1 as it stands is zero: take gradient='exact' or k2"
            )
        return self


KL = Annotated[RewardKL | LossKL, Field(discriminator="kind")]


class TIS(Settings):
    """Truncated importance sampling between trainer and sampler: min(w, cap).

    Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training";
    Ionides 2008.
    """

    kind: Literal["tis"] = "tis"
    level: CorrectionLevel = "token"
    """`sequence`: w is the product over the trajectory's sampled tokens."""
    cap: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Larger weights count as this."""


class MIS(Settings):
    """Masked importance sampling (Liu et al. 2025, "When speed kills stability").

    w where w ≤ cap, else 0: what trainer and sampler see too differently is not learned from.
    """

    kind: Literal["mis"] = "mis"
    level: CorrectionLevel = "sequence"
    """`sequence`: w is the product over the trajectory's sampled tokens."""
    cap: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Larger weights count as 0."""


class IcePop(Settings):
    """Two-sided masking of single tokens (Ling team 2025, arXiv:2510.18855).

    w where floor ≤ w ≤ cap, else 0.
    """

    kind: Literal["icepop"] = "icepop"
    floor: float = Field(0.5, gt=0, allow_inf_nan=False)
    """Smaller weights count as 0."""
    cap: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Larger weights count as 0."""

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> IcePop:
        if self.floor >= self.cap:
            raise ValueError(f"floor {self.floor:g} is not below cap {self.cap:g}")
        return self


Correction = Annotated[TIS | MIS | IcePop, Field(discriminator="kind")]
"""Weight w = trainer / sampler of the same token under the same weights, bounded and not
differentiated. With one, the ratio that is clipped has the trainer's own probability below it."""
