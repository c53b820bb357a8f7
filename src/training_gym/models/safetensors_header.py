"""The headers of safetensors files, read with the standard library: names, shapes, completeness."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from training_gym.spec.errors import ModelError

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_LARGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder; raises `ModelError` where one is missing."""
    index = folder / _INDEX
    if index.is_file():
        try:
            names = sorted(
                set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            )
        except (ValueError, KeyError, AttributeError) as error:
            raise _damaged(index, "it is no index of weights") from error
    elif (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        raise ModelError(
            f"{folder} has no {_SINGLE}",
            fix="convert the weights to safetensors, or fetch the model again",
        )
    missing = next((name for name in names if not (folder / name).is_file()), None)
    if missing is not None:
        raise ModelError(f"{folder / missing} is missing", fix="fetch the model again")
    return [folder / name for name in names]


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a model folder.

    Raises:
        ModelError: a file is missing, shorter than its header promises, or no safetensors file.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder):
        shapes.update(_file_shapes(file))
    return shapes


def metadata(file: Path) -> dict[str, str]:
    """The texts a file carries beside its tensors; raises `ModelError` where it is damaged."""
    found = _header(file)[0].get("__metadata__") or {}
    return {str(name): str(value) for name, value in found.items()}


def _file_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    header, data_start = _header(file)
    size, end = file.stat().st_size, data_start
    shapes = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            shapes[name] = tuple(int(n) for n in entry["shape"])
            end = max(end, data_start + int(entry["data_offsets"][1]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise _damaged(file, f"the entry of {name!r} is unreadable") from error
    if size != end:
        raise _damaged(file, f"{size:,} bytes where its header promises {end:,}")
    return shapes


def _header(file: Path) -> tuple[dict[str, Any], int]:
    try:
        with file.open("rb") as stream:
            prefix = stream.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 0 < length <= _LARGEST_HEADER:
                raise _damaged(file, "it does not begin with the length of a header")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise ModelError(
            f"cannot read {file}: {error.strerror}", fix="check its permissions"
        ) from error
    except ValueError as error:
        raise _damaged(file, "its header is unreadable") from error
    if not isinstance(header, dict):
        raise _damaged(file, "its header is unreadable")
    return header, 8 + length


def _damaged(file: Path, what: str) -> ModelError:
    return ModelError(f"{file} is damaged: {what}", fix="fetch the model again")


def num_values(shapes: dict[str, tuple[int, ...]]) -> int:
    """How many numbers tensors of these shapes hold."""
    return sum(math.prod(shape) for shape in shapes.values())
