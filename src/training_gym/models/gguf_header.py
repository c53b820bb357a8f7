"""The header of a GGUF file: metadata and tensor shapes, read with the standard library alone.

A header that is damaged, or a file shorter than its header promises, is a `ModelError`, so
nobody meets it an hour later as a wrong number.
"""

from __future__ import annotations

import array
import math
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from training_gym.spec.errors import ModelError

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9
_LARGEST_COUNT = 1 << 26
"""More entries than any vocabulary has: a count above this is damage, not data."""

_BLOCKS = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 36),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82), "IQ4_XS": (23, 256, 136), "I8": (24, 1, 1), "I16": (25, 1, 2),
    "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8), "IQ1_M": (29, 256, 56),
    "BF16": (30, 1, 2), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17),
}  # fmt: skip
_BLOCK_OF_CODE = {code: (values, size) for code, values, size in _BLOCKS.values()}


@dataclass(frozen=True)
class GgufTensor:
    """One tensor's entry in the header."""

    name: str
    shape: tuple[int, ...]
    """Fastest dimension first, as GGUF stores it."""
    type_code: int
    offset: int
    """Bytes after the start of the data."""

    @property
    def num_values(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int | None:
        """Size in the file; None where the type is newer than this table."""
        block = _BLOCK_OF_CODE.get(self.type_code)
        return None if block is None else -(-self.num_values // block[0]) * block[1]


@dataclass(frozen=True)
class GgufHeader:
    """What the file says of itself."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_start: int = 0
    """Bytes before the first tensor."""

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value; `{arch}` in the key stands for the architecture."""
        return self.metadata.get(key.replace("{arch}", self.architecture), default)

    @property
    def architecture(self) -> str:
        """`general.architecture`."""
        return str(self.metadata.get("general.architecture", ""))


def read_header(path: Path) -> GgufHeader:
    """The header of `path`; raises `ModelError` naming a damaged, short or foreign file."""
    try:
        with path.open("rb") as stream:
            header = _Reader(stream).header()
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror}", fix="check the path and its permissions"
        ) from error
    except _Damaged as error:
        raise ModelError(
            f"{path} is not a usable GGUF file: {error}", fix="download the file again"
        ) from error
    _check_length(path, header)
    return header


def _check_length(path: Path, header: GgufHeader) -> None:
    ends = [t.offset + t.num_bytes for t in header.tensors if t.num_bytes is not None]
    wanted = header.data_start + max(ends) if ends else 0
    actual = path.stat().st_size
    if actual < wanted:
        raise ModelError(
            f"{path} is cut short: {actual:,} bytes of {wanted:,}", fix="download the file again"
        )


class _Damaged(Exception):
    """Bytes that no GGUF writer wrote."""


class _Reader:
    """Reads one header front to back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def header(self) -> GgufHeader:
        if self._take(4) != b"GGUF":
            raise _Damaged("it does not begin with 'GGUF'")
        version = self._scalar("I")
        if version not in (2, 3):
            raise _Damaged(f"version {version} of the format, 2 and 3 are known")
        num_tensors, num_entries = self._count(), self._count()
        metadata = {}
        for _ in range(num_entries):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        tensors = tuple(self._tensor() for _ in range(num_tensors))
        alignment = int(metadata.get("general.alignment", 32)) or 32
        data_start = -(-self._stream.tell() // alignment) * alignment
        return GgufHeader(metadata, tensors, data_start)

    def _take(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise _Damaged("it ends inside its header")
        return data

    def _scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _count(self) -> int:
        count = int(self._scalar("Q"))
        if count > _LARGEST_COUNT:
            raise _Damaged(f"a count of {count} entries")
        return count

    def _string(self) -> str:
        # Vocabularies may hold pieces that are no valid UTF-8; those keep their bytes.
        return self._take(self._count()).decode("utf-8", "surrogateescape")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise _Damaged(f"an unknown value type {kind}")
        return self._scalar(_SCALARS[kind])

    def _array(self) -> list[Any]:
        kind, count = self._scalar("I"), self._count()
        code = _SCALARS.get(kind)
        if code is None:
            return [self._value(kind) for _ in range(count)]
        if code == "?":
            return [byte != 0 for byte in self._take(count)]
        values = array.array(code)
        values.frombytes(self._take(count * struct.calcsize(f"<{code}")))
        if sys.byteorder == "big":
            values.byteswap()
        return values.tolist()

    def _tensor(self) -> GgufTensor:
        name = self._string()
        num_dimensions = self._scalar("I")
        if num_dimensions > 8:
            raise _Damaged(f"a tensor of {num_dimensions} dimensions")
        shape = tuple(self._scalar("Q") for _ in range(num_dimensions))
        return GgufTensor(name, shape, self._scalar("I"), self._scalar("Q"))
