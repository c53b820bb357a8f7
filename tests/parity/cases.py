"""What is compared with TRL: our algorithms, TRL's settings for the same, and TRL's numbers."""

import json
import os
from pathlib import Path

import pytest

from training_gym.spec.algorithms import (
    CISPO,
    DAPO,
    DPO,
    GRPO,
    GSPO,
    RLOO,
    DrGRPO,
)
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.loss_terms import MIS, TIS, LossKL, RewardKL

STORED = Path(__file__).with_name("trl_numbers.json")
TOLERANCE = 1e-5
MAX_TOKENS, TEMPERATURE = 12, 0.9

WITH_SAMPLER = {"use_vllm": True}
"""TRL corrects for its sampler only where that is vLLM; what vLLM would return is given to it."""

OTHER_REFERENCE = {"reference": True}
"""The reference is another model, not the policy's start, so that the first KL is not zero."""

POLICY = {
    "grpo": (GRPO(), {}),
    "grpo_without_std": (GRPO(normalize_by_std=False), {"scale_rewards": "none"}),
    "dual_clip": (GRPO(dual_clip=1.3, clip_low=0.1, clip_high=0.1), {"delta": 1.3, "epsilon": 0.1}),
    "dr_grpo": (DrGRPO(), {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    "dapo": (DAPO(), {"loss_type": "dapo", "epsilon_high": 0.28}),
    "gspo": (
        GSPO(clip_low=0.05, clip_high=0.05),
        {"importance_sampling_level": "sequence", "epsilon": 0.05},
    ),
    "cispo": (CISPO(ratio_max=1.2), {"loss_type": "cispo", "epsilon_high": 1.2}),
    "kl_plain": (
        GRPO(kl=LossKL(coefficient=0.3, gradient="plain")),
        {"beta": 0.3, "use_bias_correction_kl": False, **OTHER_REFERENCE},
    ),
    "kl_exact": (
        GRPO(kl=LossKL(coefficient=0.3)),
        {"beta": 0.3, "use_bias_correction_kl": True, **OTHER_REFERENCE},
    ),
    "entropy": (
        DAPO(entropy_coefficient=0.05),
        {"loss_type": "dapo", "epsilon_high": 0.28, "entropy_coef": 0.05},
    ),
    "tis": (
        GRPO(correction=TIS(cap=1.2)),
        {
            **WITH_SAMPLER,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": 1.2,
        },
    ),
    "mis": (
        GRPO(correction=MIS(cap=1.5)),
        {
            **WITH_SAMPLER,
            "vllm_importance_sampling_mode": "sequence_mask",
            "vllm_importance_sampling_clip_max": 1.5,
        },
    ),
    "mis_token": (
        DAPO(correction=MIS(level="token", cap=1.2)),
        {
            "loss_type": "dapo",
            "epsilon_high": 0.28,
            **WITH_SAMPLER,
            "vllm_importance_sampling_mode": "token_mask",
            "vllm_importance_sampling_clip_max": 1.2,
        },
    ),
    "rloo": (RLOO(), {"rloo": True, "beta": 0.0}),
    "rloo_kl": (
        RLOO(kl=RewardKL(coefficient=0.1)),
        {"rloo": True, "beta": 0.1, **OTHER_REFERENCE},
    ),
}
PAIRS = {
    "dpo": (DPO(beta=0.3), {"loss_type": "sigmoid"}),
    "dpo_by_length": (DPO(beta=0.3, length_normalized=True), {"loss_type": "sigmoid_norm"}),
    "ipo": (DPO(beta=0.3, loss="ipo", length_normalized=True), {"loss_type": "ipo"}),
}
MIXTURES = (0.0, 0.3, 1.0)


def stored(name):
    return json.loads(STORED.read_text())[name]


def keep(name, result, **further):
    """Compare with TRL, and keep its numbers where asked to."""
    if not os.environ.get("STORE_PARITY"):
        return
    known = json.loads(STORED.read_text()) if STORED.exists() else {}
    known[name] = {"loss": result.loss, "projections": result.projections, **further}
    STORED.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def agree(found, name):
    expected = stored(name)
    assert found.loss == pytest.approx(expected["loss"], rel=TOLERANCE)
    scale = expected["projections"][0]
    assert found.projections == pytest.approx(expected["projections"], abs=1e-4 * scale)


def equal(found, expected):
    loss, gradients = found.against(expected)
    assert (loss, gradients) == pytest.approx((0.0, 0.0), abs=TOLERANCE)


def answers_batch(trainer, rows):
    """Rows of (ids, whether each is learned); pairs are neighbours."""
    trajectories = []
    for ids, mask in rows:
        length = mask.index(1)
        trajectories.append(
            Trajectory(
                token_ids=tuple(ids),
                flags=tuple(SAMPLED if on else PROMPT for on in mask),
                logprobs=(0.0,) * len(ids),
                versions=(-1,) * len(ids),
                prompt_length=length,
            )
        )
    share = 1 / trainer._objective.together
    return TrainingBatch(
        trajectories=tuple(trajectories),
        advantages=tuple((0.0,) * len(t.token_ids) for t in trajectories),
        weights=(share,) * len(trajectories),
        columns=trainer.annotate(trajectories) if trainer.columns else {},
    )
