"""Readers that look only at what the index keeps of a line: what they give is the same, sooner.

They need msgspec, and lines as our recorder writes them; all others are read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from training_gym.records.run_directory import SCHEMA_VERSION

Reader = Callable[[bytes], Any]
"""From a line to what it says; None: it must be read as a whole."""


def quick_reader(stream: str) -> Reader:
    """The reader of a stream's lines; it may remember what it has seen."""
    if SCHEMA_VERSION == 1 and find_spec("msgspec") is not None:
        if stream == "episodes":
            from training_gym.records.index.typed_lines import quick_head

            return quick_head
        if stream == "metrics":
            from training_gym.records.index.typed_metrics import MetricReader

            return MetricReader()
        if stream in ("spans", "tokens"):
            from training_gym.records.index.typed_bodies import quick_remark, quick_span

            return quick_span if stream == "spans" else quick_remark
    return _never


def _never(line: bytes) -> None:
    """Where all of a line must be read."""
