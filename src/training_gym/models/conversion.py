"""The door to the GGUF converter, which needs the extra `local`."""

from __future__ import annotations

from pathlib import Path

from training_gym.spec.errors import ModelError


def convert(file: Path, directory: Path) -> None:
    """Write the model in a GGUF file to `directory` as safetensors.

    Raises:
        ModelError: the extra is not installed, or the file is damaged or of an unknown kind.
    """
    try:
        import gguf
        import torch
        import transformers
    except ImportError as error:
        raise ModelError(
            f"converting {file.name} needs {error.name}", fix="pip install 'training-gym[local]'"
        ) from error
    del gguf, torch, transformers
    from training_gym.models.weights.gguf import convert_gguf

    convert_gguf(file, directory)
