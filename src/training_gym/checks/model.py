"""The model: whether it is here and whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training_gym.checks.findings import raised
from training_gym.checks.subject import Subject
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding


def model_can_be_read(subject: Subject) -> Iterator[Finding]:
    """`model.missing`, `model.unusable`, `model.damaged`: not found, not understood, not whole."""
    if isinstance(subject.model, GymError):
        yield raised("model.missing", subject.model)
    elif isinstance(subject.architecture, GymError):
        yield raised("model.unusable", subject.architecture)
    else:
        yield from _damaged_weights(subject.model)


def companion_can_be_read(subject: Subject) -> Iterator[Finding]:
    """`model.companion`: the teacher or the reference policy is not found or not understood."""
    if isinstance(subject.companion_parameters, GymError):
        yield raised("model.companion", subject.companion_parameters)


def _damaged_weights(folder: Path) -> Iterator[Finding]:
    """`model.damaged`: files of weights are missing, or not what their headers promise."""
    from training_gym.models.safetensors_header import tensor_shapes

    try:
        tensor_shapes(folder)
    except GymError as error:
        yield raised("model.damaged", error)
