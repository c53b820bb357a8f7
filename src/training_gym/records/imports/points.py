"""What is read of another tracker's run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Point:
    """One number."""

    name: str
    step: int
    time: float
    """Seconds since 1970."""
    value: float


@dataclass(frozen=True)
class Imported:
    """All numbers of a run, and what it says of itself."""

    points: tuple[Point, ...]
    name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
