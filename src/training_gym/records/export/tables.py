"""Metrics, episodes and spans as tables: CSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from training_gym.records.index import EpisodeQuery, EpisodeRow, Index, SeriesQuery, TimelineQuery
from training_gym.spec.errors import RecordsError

Rows = Iterator[Sequence[Any]]
METRICS = ("name", "batch", "step", "seconds", "value")
EPISODES = (
    "id", "stream", "group", "member", "task", "environment", "step", "attempt", "time", "status",
    "reason", "reward", "components", "advantage", "tokens", "prompt_tokens", "turns", "staleness",
    "mean_logprob", "duration_s", "discarded", "preview",
)  # fmt: skip
SPANS = ("lane", "writer", "name", "start", "end", "step", "attempt")
EVERY_POINT = 100_000
"""Points of a metric that are written at most; longer ones are merged."""
_BATCH = 10_000


def write_csv(index: Index, run_id: str, folder: Path) -> tuple[Path, ...]:
    """`metrics.csv`, `episodes.csv`, `spans.csv`; components as JSON, times as seconds."""
    written = []
    for name, columns, rows in _tables(index, run_id):
        path = folder / f"{name}.csv"
        with open(path, "x", newline="", encoding="utf-8", errors="replace") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows([_harmless(cell) for cell in row] for row in rows)
        written.append(path)
    return tuple(written)


def write_parquet(index: Index, run_id: str, folder: Path) -> tuple[Path, ...]:
    """The same as Parquet with zstd; raises `RecordsError` where pyarrow is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise RecordsError(
            "Parquet needs pyarrow, which is not installed",
            fix="pip install 'training-gym[data]', or export --format csv",
        ) from error
    written = []
    for name, columns, rows in _tables(index, run_id):
        path = folder / f"{name}.parquet"
        if path.exists():
            raise FileExistsError(17, "it exists", str(path))
        types = {"name": pyarrow.string()}
        schema = pyarrow.schema([(c, types.get(c) or _type(pyarrow, c)) for c in columns])
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in _batches(rows):
                cells = [[_clean(value) for value in column] for column in zip(*batch, strict=True)]
                arrays = [
                    pyarrow.array(column, type=field.type)
                    for column, field in zip(cells, schema, strict=True)
                ]
                writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
        written.append(path)
    return tuple(written)


def _tables(index: Index, run_id: str) -> Iterator[tuple[str, Sequence[str], Rows]]:
    yield "metrics", METRICS, _metrics(index, run_id)
    yield "episodes", EPISODES, (_episode(row) for row in every_episode(index, run_id))
    yield "spans", SPANS, _spans(index, run_id)


def _metrics(index: Index, run_id: str) -> Rows:
    for metric in index.metric_names(run_id):
        names = (_pattern(metric.name),)
        by_step, by_time = (
            index.series((run_id,), SeriesQuery(names=names, x=axis, max_points=EVERY_POINT))
            for axis in ("step", "time")
        )
        if not by_time:
            continue
        steps = by_step[0].x if by_step and len(by_step[0].x) == len(by_time[0].x) else None
        for place, value in enumerate(by_time[0].mean):
            step = None if steps is None else int(steps[place])
            batch = by_time[0].batch[place]
            yield metric.name, None if batch < 0 else batch, step, by_time[0].x[place], value


def every_episode(index: Index, run_id: str) -> Iterator[EpisodeRow]:
    """All episodes that show, oldest first."""
    cursor = ""
    while True:
        query = EpisodeQuery(order="oldest", limit=1000, cursor=cursor)
        page = index.episodes(run_id, query)
        yield from page.episodes
        cursor = page.cursor
        if not cursor:
            return


def _episode(row: EpisodeRow) -> Sequence[Any]:
    values = row.model_dump()
    values["components"] = json.dumps(row.components)
    return [values[name] for name in EPISODES]


def _spans(index: Index, run_id: str) -> Rows:
    found = index.timeline(run_id, TimelineQuery(limit=100_000))
    for span in found.spans:
        yield [getattr(span, name) for name in SPANS]


def _batches(rows: Rows) -> Iterator[list[Sequence[Any]]]:
    batch: list[Sequence[Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _type(pyarrow: Any, name: str) -> Any:
    whole = {"batch", "step", "member", "attempt", "tokens", "prompt_tokens", "turns", "staleness"}
    numbers = {
        "seconds", "value", "time", "reward", "advantage", "mean_logprob", "duration_s",
        "start", "end",
    }  # fmt: skip
    if name in whole:
        return pyarrow.int64()
    return pyarrow.float64() if name in numbers else pyarrow.string()


def _clean(value: Any) -> Any:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _harmless(cell: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t") else cell


def _pattern(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
