"""The frozen models an algorithm needs beside the policy: a reference, or a teacher."""

from __future__ import annotations

from training_gym.spec.algorithms import DPO, Algorithm, Distill, PolicyGradient


def needs_reference(algorithm: Algorithm) -> bool:
    """Whether the policy is held near another one."""
    if isinstance(algorithm, PolicyGradient):
        return algorithm.kl is not None
    return isinstance(algorithm, DPO)


def companion_name(algorithm: Algorithm) -> str | None:
    """The model named as teacher or reference; None: none is, or it is the policy's own start."""
    if isinstance(algorithm, Distill):
        return algorithm.teacher
    if isinstance(algorithm, DPO):
        return algorithm.reference
    if isinstance(algorithm, PolicyGradient) and algorithm.kl is not None:
        return algorithm.kl.reference
    return None


def with_companion(algorithm: Algorithm, name: str) -> Algorithm:
    """The algorithm with its teacher or reference called `name`."""
    if isinstance(algorithm, Distill):
        return algorithm.changed(teacher=name)
    if isinstance(algorithm, DPO):
        return algorithm.changed(reference=name)
    assert isinstance(algorithm, PolicyGradient), "others have no companion"
    assert algorithm.kl is not None
    return algorithm.changed(kl=algorithm.kl.changed(reference=name))
