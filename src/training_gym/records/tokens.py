"""Token columns beside an episode segment: exact, compact, checked.

A block in a `.tok` file is its columns one after another, little-endian, unpadded. The line that
refers to it has the block's offset, CRC-32 and, for each column, name, type and count. What
precedes the first sampled token, the prompt, is stored once for a group in each segment.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, compress, groupby
from pathlib import Path
from typing import Any

from training_gym.spec.episodes import SAMPLED, Episode, Trajectory
from training_gym.spec.errors import RecordsError

_FORMATS = {"u32": "I", "i32": "i", "f32": "f", "f16": "e", "u8": "B"}
_SHARED_PROMPTS = 256
"""Prompts remembered at once: more than the groups that are ever in flight together."""


@dataclass(frozen=True)
class Block:
    """Columns as bytes, with name, type and count of each."""

    data: bytes
    columns: list[tuple[str, str, int]]

    @classmethod
    def pack(cls, *columns: tuple[str, str, Sequence[float]]) -> Block:
        """Each column as name, type and values; `f32` rounds to single precision."""
        packed = [
            struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values) for _, kind, values in columns
        ]
        shape = [(name, kind, len(values)) for name, kind, values in columns]
        return cls(b"".join(packed), shape)

    def reference(self, offset: int) -> dict[str, Any]:
        """What a line says of the block."""
        checksum = f"{zlib.crc32(self.data):08x}"
        return {"offset": offset, "crc32": checksum, "columns": self.columns}


def unpack(reference: dict[str, Any], read: Callable[[int, int], bytes]) -> dict[str, Any]:
    """The columns a reference names, as tuples; `read(offset, size)` returns bytes of the sidecar.

    Raises `RecordsError` if they are not what was written.
    """
    columns = [(name, _FORMATS[kind], count) for name, kind, count in reference["columns"]]
    size = sum(struct.calcsize(f"<{count}{code}") for _, code, count in columns)
    data = read(reference["offset"], size)
    if f"{zlib.crc32(data):08x}" != reference["crc32"]:
        raise RecordsError(
            f"token columns at byte {reference['offset']} do not match their checksum",
            fix="read the episodes without their tokens, or restore the .tok file",
        )
    values, at = {}, 0
    for name, code, count in columns:
        values[name] = struct.unpack_from(f"<{count}{code}", data, at)
        at += struct.calcsize(f"<{count}{code}")
    return values


class TokenColumns:
    """Stores trajectories in one sidecar after another and remembers its prompts."""

    def __init__(self) -> None:
        self._sidecar: Path | None = None
        self._prompts: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()

    def store(
        self, episode: Episode, sidecar: Path, write: Callable[[bytes], int]
    ) -> list[dict[str, Any]]:
        """What the episode's line says of its trajectories, once `write` has their columns.

        `sidecar` stands for the file that `write` appends to; prompts are shared within one.
        """
        if sidecar != self._sidecar:
            self._sidecar = sidecar
            self._prompts.clear()
        return [
            self._store(episode.group, trajectory, write) for trajectory in episode.trajectories
        ]

    def _store(
        self, group: str, trajectory: Trajectory, write: Callable[[bytes], int]
    ) -> dict[str, Any]:
        shared = trajectory.prompt_length if _prompt_is_plain(trajectory) else 0
        prompt = self._prompt(group, trajectory, shared, write) if shared else None
        block = _own_tokens(trajectory, shared)
        return {
            "agent": trajectory.agent,
            "prompt_length": trajectory.prompt_length,
            "prompt": prompt,
            "tokens": block.reference(write(block.data)),
            "sampled": sampled_sums(
                trajectory.flags[shared:], trajectory.logprobs[shared:], trajectory.versions
            ),
        }

    def _prompt(
        self, group: str, trajectory: Trajectory, length: int, write: Callable[[bytes], int]
    ) -> dict[str, Any]:
        ids, flags = trajectory.token_ids[:length], trajectory.flags[:length]
        key = (group, ids, flags)
        known = self._prompts.get(key)
        if known is None:
            block = Block.pack(("ids", "u32", ids), ("flags", "u8", flags))
            known = self._prompts[key] = block.reference(write(block.data))
            if len(self._prompts) > _SHARED_PROMPTS:
                self._prompts.popitem(last=False)
        self._prompts.move_to_end(key)
        return known


def sampled_sums(
    flags: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]
) -> dict[str, Any]:
    """Count and summed log-probability of the sampled tokens, and the first and last version.

    What lists and filters need; the line carries it so that they need not read the sidecar.
    """
    drawn = [bool(flag & SAMPLED) for flag in flags]
    known = [version for version in versions if version >= 0]
    return {
        "tokens": sum(drawn),
        "logprobs": sum(compress(logprobs, drawn)),
        "first": min(known, default=None),
        "last": max(known, default=None),
    }


def load_trajectory(stored: dict[str, Any], read: Callable[[int, int], bytes]) -> Trajectory:
    """The trajectory that `TokenColumns.store` described; raises `RecordsError`."""
    own = unpack(stored["tokens"], read)
    prompt = {"ids": (), "flags": ()}
    if stored["prompt"] is not None:
        prompt = unpack(stored["prompt"], read)
    before = len(prompt["ids"])
    versions = chain.from_iterable(
        [version] * length
        for version, length in zip(own["versions"], own["version_lengths"], strict=True)
    )
    trained = own.get("trained")
    return Trajectory.model_construct(
        agent=stored["agent"],
        token_ids=(*prompt["ids"], *own["ids"]),
        flags=(*prompt["flags"], *own["flags"]),
        logprobs=(*([0.0] * before), *own["logprobs"]),
        versions=(*([-1] * before), *versions),
        prompt_length=stored["prompt_length"],
        trained=None if trained is None else tuple(bool(flag) for flag in trained),
    )


def _prompt_is_plain(trajectory: Trajectory) -> bool:
    """Whether nothing but ids and flags need be kept of the prompt."""
    length = trajectory.prompt_length
    return not any(trajectory.logprobs[:length]) and all(
        version == -1 for version in trajectory.versions[:length]
    )


def _own_tokens(trajectory: Trajectory, shared: int) -> Block:
    runs = [(version, len(list(run))) for version, run in groupby(trajectory.versions[shared:])]
    columns: list[tuple[str, str, Sequence[float]]] = [
        ("ids", "u32", trajectory.token_ids[shared:]),
        ("logprobs", "f32", trajectory.logprobs[shared:]),
        ("versions", "i32", [version for version, _ in runs]),
        ("version_lengths", "u32", [length for _, length in runs]),
        ("flags", "u8", trajectory.flags[shared:]),
    ]
    if trajectory.trained is not None:  # the mask covers the prompt as well
        columns.append(("trained", "u8", trajectory.trained))
    return Block.pack(*columns)
