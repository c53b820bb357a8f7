"""How much an episode sampled, and by which policy versions, from its line and its sidecar."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from training_gym.records.lines import sidecar
from training_gym.records.tokens import sampled_sums, unpack
from training_gym.spec.errors import RecordsError


@dataclass(frozen=True)
class Sampled:
    """Sums over an episode's trajectories."""

    tokens: int = 0
    prompt_tokens: int = 0
    mean_logprob: float | None = None
    staleness: int | None = None
    """Between the oldest version that sampled a token and the newest."""


class SidecarReader:
    """Reads token columns where a line does not sum them up itself; opens each file once."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._files: dict[Path, BinaryIO | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def sampled(self, segment: Path, record: dict[str, Any]) -> Sampled:
        """What the record's trajectories amount to; columns that cannot be read count nothing."""
        trajectories = record.get("trajectories") or ()
        sums = [self._sum(segment, trajectory) for trajectory in trajectories]
        count = sum(int(one["tokens"]) for one in sums)
        total = sum(float(one["logprobs"]) for one in sums)
        versions = [v for one in sums for v in (one["first"], one["last"]) if v is not None]
        return Sampled(
            tokens=count,
            prompt_tokens=sum(int(one["prompt_length"]) for one in trajectories),
            mean_logprob=total / count if count else None,
            staleness=max(versions) - min(versions) if versions else None,
        )

    def read(self, segment: Path) -> Callable[[int, int], bytes]:
        """A function that reads the segment's sidecar; it raises `OSError` if there is none."""
        if segment not in self._files:
            path = sidecar(segment)
            self._files[segment] = (
                self._stack.enter_context(path.open("rb")) if path.is_file() else None
            )
        file = self._files[segment]

        def bytes_at(offset: int, size: int) -> bytes:
            if file is None:
                raise FileNotFoundError(sidecar(segment))
            file.seek(offset)
            return file.read(size)

        return bytes_at

    def _sum(self, segment: Path, trajectory: dict[str, Any]) -> dict[str, Any]:
        known = trajectory.get("sampled")
        if isinstance(known, dict):
            return known
        try:
            own = unpack(trajectory["tokens"], self.read(segment))
            return sampled_sums(own["flags"], own["logprobs"], own["versions"])
        except (RecordsError, OSError, struct.error):
            return {"tokens": 0, "logprobs": 0.0, "first": None, "last": None}
