"""From segments to a tracker: what is new since the last time, each point once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from training_gym.records.documents import read_document_if_any, write_document
from training_gym.records.index.decode import as_number
from training_gym.records.index.headline import headline
from training_gym.records.readers import read_page
from training_gym.records.run_directory import RunDirectory

PAGE = 1000
"""Records that are handed on between two notes of how far it has come."""
CURATED = ("reward/", "eval/")
"""Besides the headline metrics, those whose names begin so."""


@dataclass(frozen=True)
class SinkRun:
    """What a tracker is told of a run."""

    run_id: str
    name: str
    config: Mapping[str, Any]
    """The resolved definition as plain data."""
    tags: tuple[str, ...]

    @classmethod
    def of(cls, run: RunDirectory) -> SinkRun:
        """From the manifest; raises `RecordsError`."""
        manifest = run.manifest
        return cls(run.run_id, manifest.name or run.run_id, manifest.run, manifest.tags)


class Sink(Protocol):
    """A tracker that takes one run's numbers."""

    name: str

    def metrics(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """Take finite numbers of one batch; `time` in seconds since 1970. May be slow."""
        ...

    def close(self) -> None:
        """Write everything out; returns once the tracker has it."""
        ...


class Feeder:
    """Hands a run's metrics to a sink and remembers, in `state`, how far it has come."""

    def __init__(self, run: RunDirectory, sink: Sink, state: Path, *, everything: bool) -> None:
        """Curated metrics only, or `everything`; the file `state` belongs to this run and sink."""
        self._run, self._sink, self._state = run, sink, state
        self._everything = everything

    def feed(self) -> int:
        """Hand on what is new; how many records that was. Raises what the sink raises."""
        count = 0
        for records, cursor in self._pages():
            for record in records:
                values = self._chosen(record["values"])
                if values and record["batch"] is not None:
                    self._sink.metrics(record["batch"], record["time"], values)
                    count += 1
            write_document(self._state, {"cursor": cursor})
        return count

    def _pages(self) -> Iterator[tuple[tuple[dict[str, Any], ...], str]]:
        cursor = str((read_document_if_any(self._state) or {}).get("cursor", ""))
        while True:
            page = read_page(self._run, "metrics", since=cursor, limit=PAGE)
            if page.cursor == cursor:
                return
            cursor = page.cursor
            yield page.records, cursor

    def _chosen(self, values: Mapping[str, Any]) -> dict[str, float]:
        names = list(values)
        if not self._everything:
            shown = set(headline(names))
            names = [name for name in names if name in shown or name.startswith(CURATED)]
        numbers = {name: as_number(values[name]) for name in names}
        return {name: value for name, value in numbers.items() if math.isfinite(value)}
