"""Newest values in the text format that Prometheus scrapes; few series for each run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

from training_gym.records.index import Index, RunQuery, RunRow
from training_gym.records.index.headline import headline

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT_S = 3600.0
"""Runs that ended longer ago are left out."""
MOST_RUNS = 100

_HELP = {
    "training_gym_run_info": "1 for each run, with what it is as labels.",
    "training_gym_run_step": "Batches learned from.",
    "training_gym_run_healthy": "1 healthy or too early to say, 0.5 degraded, 0 critical.",
    "training_gym_run_heartbeat_age_seconds": "Seconds since the last heartbeat.",
    "training_gym_run_cost": "What it has cost so far.",
    "training_gym_metric": "Newest value of a headline metric.",
}
_HEALTHY = {"healthy": 1.0, "too_early": 1.0, "degraded": 0.5, "critical": 0.0}


def exposition(index: Index, *, now: float | None = None) -> str:
    """Active and just ended runs: at most 100, the newest."""
    moment = time.time() if now is None else now
    rows = [
        row
        for row in index.runs(RunQuery(limit=MOST_RUNS)).runs
        if not row.problem
        and (row.status in ("queued", "running") or moment - row.updated_at < RECENT_S)
    ]
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for row in rows:
        for name, labels, value in (*_of_run(row), *_of_metrics(index, row)):
            samples[name].append(f"{name}{{{_labels(labels)}}} {_number(value)}")
    lines = []
    for name, found in samples.items():
        if found:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge", *found]
    return "\n".join(lines) + "\n"


_Sample = tuple[str, dict[str, str], float]


def _of_run(row: RunRow) -> Iterator[_Sample]:
    run = {"run": row.run_id}
    info = {"name": row.name or "", "model": row.model, "status": row.status, "phase": row.phase}
    yield "training_gym_run_info", {**run, **info}, 1.0
    yield "training_gym_run_step", run, float(row.step)
    yield "training_gym_run_healthy", run, _HEALTHY[row.level]
    if row.heartbeat_age_s is not None:
        yield "training_gym_run_heartbeat_age_seconds", run, row.heartbeat_age_s
    if row.cost is not None:
        yield "training_gym_run_cost", run, row.cost


def _of_metrics(index: Index, row: RunRow) -> Iterator[_Sample]:
    newest = {metric.name: metric.last for metric in index.metric_names(row.run_id)}
    for name in headline(newest):
        value = newest[name]
        if value is not None:
            yield "training_gym_metric", {"run": row.run_id, "name": name}, value


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    pairs: Iterable[tuple[str, str]] = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"))
    for char, escape in pairs:
        value = value.replace(char, escape)
    return value


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
