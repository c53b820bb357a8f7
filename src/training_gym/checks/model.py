"""The model: whether it is here and whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training_gym.checks.findings import error, raised
from training_gym.checks.subject import Subject
from training_gym.spec.errors import GymError, did_you_mean
from training_gym.spec.findings import Finding


def model_can_be_read(subject: Subject) -> Iterator[Finding]:
    """`model.missing`, `model.unusable`, `model.damaged`: not found, not understood, not whole."""
    if isinstance(subject.model, GymError):
        yield raised("model.missing", subject.model)
    elif isinstance(subject.architecture, GymError):
        yield raised("model.unusable", subject.architecture)
    else:
        yield from _damaged_weights(subject.model)


def adapter_names_layers(subject: Subject) -> Iterator[Finding]:
    """`model.no_such_layer`: an adapter shall sit on layers that the model does not have."""
    adapter = subject.run.recipe.adapter
    if adapter is None or isinstance(subject.model, GymError):
        return
    layers = _layers(subject.model)
    for name in adapter.target_modules:
        if name == "all-linear" or not layers or name in layers:
            continue
        if not any(layer.endswith(f".{name}") for layer in layers):
            short = {layer.rpartition(".")[2] for layer in layers}
            yield error(
                "model.no_such_layer",
                f"target_modules: no layer of {subject.run.model} is called {name!r}",
                did_you_mean(name, short),
            )


def _layers(folder: Path) -> set[str]:
    """The modules that hold a matrix of weights; empty where the files cannot tell."""
    from training_gym.models.safetensors_header import tensor_shapes

    try:
        shapes = tensor_shapes(folder)
    except GymError:  # told by `model_can_be_read`
        return set()
    return {name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) == 2}


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
