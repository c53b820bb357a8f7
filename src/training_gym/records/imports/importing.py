"""Reads another tracker's files into a run directory of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from training_gym.records.demo.clock import Clock, TimedWriter
from training_gym.records.imports.points import Imported, Point
from training_gym.records.imports.tensorboard import read_tensorboard
from training_gym.records.imports.wandb import read_wandb
from training_gym.records.results import Exit, write_exit, write_result
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import RecordsError, did_you_mean

IMPORTS: dict[str, Callable[[Path], Imported]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
}


def import_run(kind: str, source: Path, runs: Path, *, run_id: str | None = None) -> RunDirectory:
    """A new run in `runs` with the numbers of a TensorBoard folder or a wandb offline run.

    A step becomes both batch and optimizer step. Raises `RecordsError` where there is nothing to
    read, the package that reads it is missing, or there is a run of that id.
    """
    if kind not in IMPORTS:
        raise RecordsError(f"{kind!r} cannot be imported", fix=did_you_mean(kind, IMPORTS))
    try:
        found = IMPORTS[kind](source)
    except ImportError as error:
        raise RecordsError(
            f"reading {kind} needs the package {error.name or kind}, which is not installed",
            fix=f"pip install {kind}",
        ) from error
    if not found.points:
        raise RecordsError(f"{source} holds no numbers of {kind}", fix="name the folder of one run")
    return _write(kind, source, found, runs, run_id)


def _write(
    kind: str, source: Path, found: Imported, runs: Path, run_id: str | None
) -> RunDirectory:
    name = run_id or f"{kind}-" + (
        re.sub(r"[^A-Za-z0-9_.-]+", "-", source.name).strip("-.") or "run"
    )
    begun = min(point.time for point in found.points)
    ended = max(point.time for point in found.points)
    manifest = Manifest(
        run_id=name,
        created_at=begun,
        name=found.name or source.name,
        tags=("imported", kind),
        run={"model": str(found.config.get("model", "")), "recipe": {}, "imported": found.config},
        parents=(),
    )
    run = RunDirectory.create(runs / name, manifest)
    clock = Clock(begun)
    writer = TimedWriter(run, kind, 1, clock)
    for step, moment, values in _by_step(found.points):
        clock.now = moment
        counters = Counters(batch=step, optimizer_step=step)
        writer.write("metrics", {"values": values}, counters=counters)
    writer.close()
    write_exit(run, Exit(attempt=1, exit_code=0, started_at=begun, ended_at=ended))
    write_result(run)
    return run


def _by_step(points: Iterable[Point]) -> list[tuple[int, float, dict[str, Any]]]:
    """Points of one step together; where a metric comes twice, the later one counts."""
    steps: dict[int, tuple[float, dict[str, Any]]] = {}
    for point in sorted(points, key=lambda p: (p.step, p.time)):
        values = steps.get(point.step, (0.0, {}))[1]
        values[point.name] = point.value
        steps[point.step] = (point.time, values)
    return [(step, *found) for step, found in sorted(steps.items())]
