"""What a resume hides: what earlier attempts recorded past the point it started from.

Hidden are metrics, spans, episodes and evaluations: they were trained or measured again. Logs,
events, alerts and heartbeats tell what happened and always show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

HIDEABLE = frozenset({"metrics", "spans", "episodes", "evaluations"})


@dataclass(frozen=True)
class Cut:
    """The point that one attempt started from."""

    attempt: int
    """The attempt that started; it cuts those before it."""
    fresh: bool
    """It started from nothing."""
    optimizer_step: int | None = None
    batch: int | None = None
    writer: str = ""
    """Whose records are cut at `seq` of `writer_attempt`; empty: only counters are known."""
    writer_attempt: int = 0
    seq: int = -1

    @classmethod
    def parse(cls, event: Mapping[str, Any]) -> Self:
        """From an `attempt_started` event."""
        point = event.get("resumed_from")
        if point is None:
            return cls(attempt=event["attempt"], fresh=True)
        if isinstance(point, int):  # an optimizer step, from engines that know no more
            point = {"optimizer_step": point}
        position = point.get("position") or {}
        return cls(
            attempt=event["attempt"],
            fresh=False,
            optimizer_step=point.get("optimizer_step"),
            batch=point.get("batch"),
            writer=position.get("writer", ""),
            writer_attempt=position.get("attempt", 0),
            seq=position.get("seq", -1),
        )

    def hides(self, record: Mapping[str, Any]) -> bool:
        """Whether the record, of a stream that can be hidden, lies past the point."""
        if record["attempt"] >= self.attempt:
            return False
        if self.fresh:
            return True
        if self.writer == record["writer"]:
            here = (record["attempt"], record["seq"])
            return here > (self.writer_attempt, self.seq)
        return _past(record["optimizer_step"], self.optimizer_step) or _past(
            record["batch"], self.batch
        )


def cuts(events: Iterable[Mapping[str, Any]]) -> list[Cut]:
    """All cuts that a run's events speak of."""
    return [Cut.parse(event) for event in events if event.get("kind") == "attempt_started"]


def is_hidden(record: Mapping[str, Any], made: Sequence[Cut]) -> bool:
    """Whether any cut hides the record."""
    return any(cut.hides(record) for cut in made)


def _past(value: int | None, limit: int | None) -> bool:
    return value is not None and limit is not None and value > limit
