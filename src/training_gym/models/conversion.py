"""The door to the GGUF converter, which needs the extra `local`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from training_gym.spec.errors import ModelError

_NEEDED = ("torch", "transformers", "gguf", "accelerate")


def check_converter(what: str) -> None:
    """Raise `ModelError` where the packages that convert `what` are not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"converting {what} needs {', '.join(missing)}", fix="pip install 'training-gym[local]'"
        )


def convert(file: Path, directory: Path) -> None:
    """Write the model in a GGUF file to `directory` as safetensors.

    Raises:
        ModelError: the extra is not installed, or the file is damaged or of an unknown kind.
    """
    check_converter(file.name)
    from training_gym.models.weights.gguf import convert_gguf

    convert_gguf(file, directory)
