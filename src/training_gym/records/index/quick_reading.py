"""Readers that look only at what the index keeps of lines: what they give is the same, sooner.

They need msgspec, and lines as our recorder writes them; all others are read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from training_gym.records.run_directory import SCHEMA_VERSION

Reader = Callable[[bytes], Sequence[Any] | None]
"""From whole lines to what each of them says, None in the place of one that must be read as a
whole; None for all of them: so must all."""


def quick_reader(stream: str) -> Reader:
    """The reader of a stream's lines; it may remember what it has seen."""
    if SCHEMA_VERSION != 1 or find_spec("msgspec") is None:
        return _never
    if stream == "metrics":
        from training_gym.records.index.typed_metrics import MetricReader

        return MetricReader().read
    from training_gym.records.index import typed_bodies
    from training_gym.records.index.typed_lines import quick_heads

    readers: dict[str, Reader] = {
        "episodes": quick_heads,
        "spans": typed_bodies.quick_spans,
        "logs": typed_bodies.quick_logs,
        "tokens": typed_bodies.quick_columns,
        "heartbeat": typed_bodies.quick_beats,
    }
    return _all_or_none(readers[stream]) if stream in readers else _never


def _all_or_none(reader: Reader) -> Reader:
    """Lines that are not all as our recorder writes them are tried one by one."""
    import msgspec

    def read(data: bytes) -> Sequence[Any] | None:
        try:
            return reader(data)
        except (msgspec.MsgspecError, UnicodeError, KeyError, AttributeError, TypeError):
            return None

    def read_each(data: bytes) -> Sequence[Any] | None:
        found = read(data)
        if found is not None or data.count(b"\n") == 1:
            return found
        alone = [read(line + b"\n") for line in data.split(b"\n")[:-1]]
        return [one[0] if one else None for one in alone]

    return read_each


def _never(data: bytes) -> None:
    """Where all of a line must be read."""
