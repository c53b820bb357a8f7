"""What a parser makes of an answer's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training_gym.spec.messages import ToolSpec


@dataclass(frozen=True)
class WrittenCall:
    """A call as the model wrote it."""

    name: str
    arguments: str
    """JSON where the family writes JSON, as it stands, valid or not; else the JSON of what the
    family's own notation says."""


@dataclass(frozen=True)
class Parsed:
    """An answer taken apart. Whatever is not understood stays in the content, as it was written."""

    content: str
    reasoning: str | None = None
    calls: tuple[WrittenCall, ...] = ()


CallReader = Callable[[str, Sequence[ToolSpec]], Parsed | None]
"""Content and calls of an answer's text behind its reasoning; None: it makes no (whole) call."""
