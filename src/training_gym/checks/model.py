"""The model: whether it is here and whether it can chat."""

from __future__ import annotations

from collections.abc import Iterator

from training_gym.checks.findings import raised
from training_gym.checks.subject import Subject
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding


def model_can_be_read(subject: Subject) -> Iterator[Finding]:
    """`model.missing`, `model.unusable`: it cannot be found, fetched or understood."""
    if isinstance(subject.model, GymError):
        yield raised("model.missing", subject.model)
    elif isinstance(subject.architecture, GymError):
        yield raised("model.unusable", subject.architecture)
