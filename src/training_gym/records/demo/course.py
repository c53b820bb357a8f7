"""How a demo run goes: for every batch, how able, how varied, how long, how broken."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

from training_gym.records.demo.shape import DemoShape, Kind

SICK_FROM = 0.35
"""Share of the run after which its sickness shows."""


@dataclass(frozen=True)
class Moment:
    """What one batch is like."""

    progress: float
    """Share of the run that lies behind, 0 to 1."""
    skill: float
    """Chance that an answer is right."""
    held_out_skill: float
    entropy: float
    """Nats per token."""
    kl: float
    """Nats per token to the sampler."""
    grad_norm: float
    length: float
    """Answer's length as a multiple of the first."""
    padding: float = 0.0
    """Reward for length alone."""
    agreement: float = 0.1
    """Chance that all of a group get the same reward."""
    truncated: float = 0.03
    failed: float = 0.0
    """Share of the episodes that the infrastructure fails."""
    mismatch: float = 0.004
    """Mean absolute difference of log-probabilities."""
    clipped: float = 0.02
    repetition: float = 0.0
    """Chance that an answer says what another of its group says."""
    slowness: float = 1.0
    form: float = 0.9
    """Chance that an answer has the asked form."""


def moment(shape: DemoShape, step: int, random: Random) -> Moment:
    """The batch number `step`, counted from 1."""
    progress = step / shape.steps
    learned = 1 - math.exp(-3 * progress)
    skill = 0.15 + 0.65 * learned + random.gauss(0, 0.02)
    healthy = Moment(
        progress=progress,
        skill=min(0.97, max(0.02, skill)),
        held_out_skill=0.14 + 0.55 * learned,
        entropy=0.45 + 0.75 * math.exp(-2 * progress) + random.gauss(0, 0.02),
        kl=0.0008 + 0.0004 * learned + abs(random.gauss(0, 0.0002)),
        grad_norm=math.exp(random.gauss(math.log(0.8), 0.15)),
        length=1 + 0.25 * learned,
        agreement=0.08 + 0.2 * learned,
        mismatch=max(0.001, random.gauss(0.004, 0.0006)),
        clipped=max(0.0, random.gauss(0.02, 0.005)),
        slowness=math.exp(random.gauss(0, 0.08)),
        form=0.4 + 0.55 * learned,
    )
    sick = max(0.0, (progress - SICK_FROM) / (1 - SICK_FROM))
    return _spoil(healthy, shape.kind, sick, random) if sick > 0 else healthy


def _spoil(now: Moment, kind: Kind, sick: float, random: Random) -> Moment:
    """The same moment with the sickness so far advanced, 0 to 1."""
    if kind == "reward_hacking":
        return replace(
            now,
            skill=now.skill * (1 - 0.7 * sick),
            held_out_skill=now.held_out_skill * (1 - 0.7 * sick),
            length=now.length * (1 + 4 * sick),
            padding=0.9 * sick,
            truncated=0.03 + 0.3 * sick,
            agreement=0.02,
        )
    if kind == "zero_variance":
        return replace(now, agreement=min(0.98, 0.2 + 2 * sick), skill=max(now.skill, 0.9 * sick))
    if kind == "entropy_collapse":
        return replace(
            now,
            entropy=max(0.01, now.entropy * math.exp(-6 * sick)),
            repetition=min(0.95, 2 * sick),
            held_out_skill=now.held_out_skill * (1 - 0.4 * sick),
        )
    if kind == "learning_rate":
        return replace(
            now,
            grad_norm=now.grad_norm * math.exp(6 * sick + abs(random.gauss(0, 0.5))),
            entropy=now.entropy + 4 * sick,
            length=now.length * (1 + 3 * sick),
            skill=now.skill * max(0.02, 1 - 1.6 * sick),
            held_out_skill=now.held_out_skill * max(0.02, 1 - 1.6 * sick),
            kl=now.kl * math.exp(5 * sick),
            clipped=min(0.8, now.clipped + 0.7 * sick),
            truncated=min(0.95, 0.03 + sick),
        )
    if kind == "mismatch":
        return replace(
            now,
            mismatch=now.mismatch + 0.12 * sick,
            kl=now.kl + 0.15 * sick,
            clipped=now.clipped + 0.3 * sick,
        )
    if kind == "dead_sandbox":
        return replace(now, failed=0.9 if sick > 0.1 else 0.1, slowness=now.slowness * 1.8)
    return now
