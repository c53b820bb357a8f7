"""Writes demo runs: all at once in the run's own time, or live, a batch every few seconds."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from training_gym.records.checkpoints import Position
from training_gym.records.demo import documents
from training_gym.records.demo.attempt import DemoAttempt
from training_gym.records.demo.clock import Clock, TimedWriter
from training_gym.records.demo.plays import Player
from training_gym.records.demo.shape import DemoShape
from training_gym.records.health.replay import changes as replayed
from training_gym.records.run_directory import RunDirectory
from training_gym.records.vocabulary import write_vocabulary
from training_gym.spec.episodes import Counters

STUCK_S = 2400.0
"""How long the demo run that hangs does so before somebody stops it."""


def write_demo_run(
    runs: Path, shape: DemoShape, *, run_id: str | None = None, ended_at: float | None = None
) -> RunDirectory:
    """Write a whole run into the folder `runs`, as if it had ended at `ended_at` (None: now).

    Raises `RecordsError` if there is a run of this id already.
    """
    end = time.time() if ended_at is None else ended_at
    duration = shape.steps * shape.step_s * 1.3 + 600
    clock = Clock(end - duration)
    run = documents.create(runs, run_id or default_id(shape), shape, clock.now)
    player = Player(shape)
    attempt = DemoAttempt(run, shape, player, clock, 1)
    documents.abandon_attempt(run, 1)
    attempt.start()
    if shape.kind == "resumed":
        attempt = _killed_and_resumed(run, shape, player, clock, attempt)
    stuck_at = round(0.6 * shape.steps) if shape.kind == "stall" else None
    for step in range(attempt.first, shape.steps + 1):
        attempt.batch(step)
        if step == stuck_at:
            attempt.hang(STUCK_S)
            break
    _finish(run, shape, attempt, stuck=stuck_at is not None)
    _watch(run, attempt, clock)
    write_vocabulary(run, player.vocabulary.texts, replace=True)
    return run


def follow_demo_run(
    runs: Path, shape: DemoShape, *, run_id: str | None = None, every_s: float = 2.0
) -> Generator[tuple[RunDirectory, int], None, None]:
    """Write a run live, a batch every `every_s` seconds; yields after each one.

    The run is `running` as long as this process lives. Closing the iterator stops the run.
    """
    clock = Clock(time.time())
    run = documents.create(runs, run_id or default_id(shape), shape, clock.now)
    player = Player(shape)
    documents.begin_attempt(run, 1)
    attempt = DemoAttempt(run, shape.changed(step_s=every_s), player, clock, 1)
    attempt.start()
    begun = time.monotonic()
    step = 0
    try:
        for step in range(1, shape.steps + 1):
            attempt.batch(step)
            write_vocabulary(run, player.vocabulary.texts, replace=True)
            attempt.flush()
            yield run, step
            time.sleep(max(0.0, begun + step * every_s - time.monotonic()))
            clock.now = max(clock.now, time.time())
    finally:
        _finish(run, shape, attempt, stuck=step < shape.steps)


def _watch(run: RunDirectory, attempt: DemoAttempt, clock: Clock) -> None:
    """Write the alerts that the job runner's watch would have raised, when it would have."""
    writer = TimedWriter(run, "health", attempt.number, clock)
    clock.now = attempt.started_at
    writer.write("events", {"kind": "health_started", "rules_off": []})
    for alert in replayed(run):
        clock.now = alert.updated_at
        counters = Counters(batch=alert.last_step)
        writer.write("alerts", alert.record(), counters=counters)
    writer.close()


def default_id(shape: DemoShape) -> str:
    """Names kind and seed."""
    return f"demo-{shape.kind.replace('_', '-')}-{shape.seed}"


def _killed_and_resumed(
    run: RunDirectory, shape: DemoShape, player: Player, clock: Clock, first: DemoAttempt
) -> DemoAttempt:
    """Half the run, a checkpoint, some batches more, a crash, and the attempt that goes on."""
    saved, killed = max(1, shape.steps // 2), max(1, round(0.65 * shape.steps))
    point: tuple[int, Position] | None = None
    for step in range(1, killed + 1):
        first.batch(step)
        if step == saved:
            point = step, first.position()
    first.close()
    documents.end_attempt(
        run,
        1,
        started_at=first.started_at,
        ended_at=clock.now,
        exit_code=137,
        reason="the engine was killed by SIGKILL",
    )
    clock.now += 300
    documents.abandon_attempt(run, 2)
    second = DemoAttempt(run, shape, player, clock, 2)
    second.start(point)
    return second


def _finish(run: RunDirectory, shape: DemoShape, attempt: DemoAttempt, *, stuck: bool) -> None:
    if not stuck:
        attempt.evaluate("final")
    summary: dict[str, Any] = attempt.summary()
    attempt.close()
    documents.end_attempt(
        run,
        attempt.number,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        stopped_by="stop" if stuck else None,
        reason="stopped on request" if stuck else "finished",
    )
    summary["status"] = "stopped" if stuck else "completed"
    documents.finish(run, attempt.number, summary)
