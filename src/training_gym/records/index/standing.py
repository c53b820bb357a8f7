"""Where a run stands: its row in a list, from its files and its database."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_gym.records.index import verdicts
from training_gym.records.index.curves import curves, literal, newest
from training_gym.records.index.decode import whole_json
from training_gym.records.index.record_reading import (
    annotations_of,
    figure_of,
    notes_of,
    records_of,
    tags_of,
)
from training_gym.records.index.run_values import Figure, RunRow
from training_gym.records.index.series_values import SeriesQuery
from training_gym.records.results import Result, last_result, read_exit
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import run_status
from training_gym.spec.errors import GymError, RecordsError

REWARD = ("reward_mean", "loss")
"""The metric a run is known by; the first it has."""
SPARKLINE = 32
ACTIVE = ("queued", "running")


@dataclass(frozen=True)
class Documents:
    """The files of a run that change at most once an attempt."""

    run: RunDirectory
    manifest: Mapping[str, Any]
    status: str
    problem: str = ""
    reason: str = ""
    """Why the run ended, if it has and there is something to say."""
    attempts: tuple[int, ...] = ()
    result: Result | None = None
    """The last one that was written, though an attempt may have begun since."""

    @classmethod
    def read(cls, run: RunDirectory) -> Documents:
        """Read them; what cannot be read is a `problem`."""
        try:
            manifest = whole_json(run.manifest_path.read_bytes())
            manifest["run"]["recipe"]
            float(manifest["created_at"])
            attempts, result = tuple(run.attempts()), last_result(run)
            if result is None or result.attempts < max(attempts, default=0):
                return cls(run, manifest, run_status(run), attempts=attempts, result=result)
            return cls(run, manifest, result.status, "", result.reason, attempts, result)
        except (OSError, ValueError, LookupError, TypeError, GymError) as error:
            lines = str(error).splitlines()
            problem = lines[0] if lines else type(error).__name__
            return cls(run, {}, "failed", problem)

    def require_readable(self) -> None:
        """Raise `RecordsError` where the run has a problem."""
        if self.problem:
            raise RecordsError(self.problem, fix="restore the run's files from a copy")


def row_of(documents: Documents, connection: sqlite3.Connection | None) -> RunRow:
    """The run's row; without a connection, what its documents alone say."""
    if documents.problem:
        return _unreadable(documents)
    fields = _from_documents(documents)
    if connection is not None:
        fields |= _from_index(documents, connection, fields)
    else:
        fields |= {"indexed": False}
        if documents.status not in ("failed", "lost"):
            fields |= {"level": "too_early", "verdict": "Not read yet"}
    # Ages come from the clock, so they are no part of what identifies the row.
    text = json.dumps(fields, sort_keys=True, default=str)
    fields["version"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return with_age(RunRow(**fields))


def with_age(row: RunRow) -> RunRow:
    """The row with the age of its heartbeat now."""
    if row.heartbeat_at is None or row.status not in ACTIVE:
        return row
    return row.model_copy(update={"heartbeat_age_s": max(0.0, time.time() - row.heartbeat_at)})


def _unreadable(documents: Documents) -> RunRow:
    run = documents.run
    return RunRow(
        run_id=run.run_id,
        path=str(run.path),
        name=None,
        model="",
        tags=(),
        status="failed",
        problem=documents.problem,
        level="critical",
        verdict=f"Unreadable: {documents.problem}",
        phase="",
        created_at=0.0,
        updated_at=0.0,
        heartbeat_at=None,
        heartbeat_age_s=None,
        attempt=0,
        step=0,
        num_steps=None,
        reward=None,
        reward_name=REWARD[0],
        sparkline=(),
        evaluation=None,
        accelerator_busy=None,
        cost=None,
        wall_s=0.0,
        num_notes=0,
        version=hashlib.sha256(documents.problem.encode()).hexdigest()[:12],
    )


def _from_documents(documents: Documents) -> dict[str, Any]:
    run, manifest, result = documents.run, documents.manifest, documents.result
    recipe = manifest["run"]["recipe"] or {}
    created = float(manifest["created_at"])
    steps = (result.steps if result is not None else None) or 0
    summary = verdicts.Summary(status=documents.status, steps=steps, reason=documents.reason)
    verdict = verdicts.verdict(summary, (), ())
    return {
        "run_id": run.run_id,
        "path": str(run.path),
        "name": manifest.get("name"),
        "model": str(manifest["run"].get("model", "")),
        "tags": tags_of(manifest, ()),
        "status": documents.status,
        "level": verdict.level,
        "verdict": verdict.sentence,
        "phase": "",
        "created_at": created,
        "updated_at": created,
        "heartbeat_at": None,
        "heartbeat_age_s": None,
        "attempt": max(documents.attempts, default=0),
        "step": steps,
        "num_steps": recipe.get("num_steps"),
        "reward": None,
        "reward_name": REWARD[0],
        "sparkline": (),
        "evaluation": None if result is None else _final(result),
        "accelerator_busy": None,
        "cost": None if result is None else _cost(result),
        "wall_s": 0.0 if result is None else result.wall_s,
        "num_notes": 0,
    }


def _final(result: Result) -> Figure | None:
    found = result.final
    if not isinstance(found, dict):
        return None
    named = {"name": result.details.get("evaluation", ""), "tasks": found.get("count", 0)}
    return figure_of({**found, **named}, result.steps)


def _cost(result: Result) -> float | None:
    cost = result.cost
    if isinstance(cost, dict):
        cost = cost.get("total")
    return float(cost) if isinstance(cost, int | float) else None


def _from_index(
    documents: Documents, connection: sqlite3.Connection, known: Mapping[str, Any]
) -> dict[str, Any]:
    run_id = documents.run.run_id
    name = next((n for n in REWARD if newest(connection, n)[0] is not None), REWARD[0])
    reward, batch = newest(connection, name)
    line = _line(connection, run_id, name, SPARKLINE)
    step = max(batch or 0, int(known["step"]))
    heartbeat = connection.execute("SELECT max(time) FROM heartbeats").fetchone()[0]
    updated = _updated(connection, heartbeat, known["created_at"])
    annotations = list(annotations_of(connection))
    summary = verdicts.Summary(
        status=documents.status,
        steps=step,
        rewards=_line(connection, run_id, name, 100_000) if name == REWARD[0] else (),
        reason=documents.reason,
    )
    verdict = verdicts.verdict(
        summary,
        records_of(connection, "alerts"),
        [{**fields, "time": moment} for moment, fields in annotations],
    )
    spent, _ = newest(connection, "cost")
    return {
        "tags": tags_of(documents.manifest, [fields for _, fields in annotations]),
        "level": verdict.level,
        "verdict": verdict.sentence,
        "phase": phase_of(connection) if documents.status in ACTIVE else "",
        "updated_at": updated,
        "heartbeat_at": heartbeat,
        "step": step,
        "reward": reward,
        "reward_name": name,
        "sparkline": line,
        "evaluation": _newest_evaluation(connection) or known["evaluation"],
        "accelerator_busy": _busy(connection, run_id),
        "cost": known["cost"] if known["cost"] is not None else spent,
        "wall_s": _wall_s(documents, updated),
        "num_notes": len(notes_of(connection)),
        "indexed": True,
    }


def _line(connection: sqlite3.Connection, run_id: str, name: str, points: int) -> tuple[float, ...]:
    drawn = curves(connection, run_id, SeriesQuery(names=(literal(name),), max_points=points))
    return tuple(v for v in drawn[0].mean if math.isfinite(v)) if drawn else ()


def _busy(connection: sqlite3.Connection, run_id: str) -> float | None:
    """Sampling and training time of the last ten batches as a share of their whole time."""
    names = ("rollout_seconds", "train_seconds", "step_seconds")
    found = {s.name: s.mean for s in curves(connection, run_id, SeriesQuery(names=names))}
    whole = sum(found.get("step_seconds", ())[-10:])
    if not whole or "rollout_seconds" not in found:
        return None
    used = sum(sum(found.get(name, ())[-10:]) for name in names[:2])
    return min(1.0, used / whole)


def _newest_evaluation(connection: sqlite3.Connection) -> Figure | None:
    first = connection.execute(
        "SELECT kind FROM records WHERE stream = 'evaluations' AND hidden = 0"
        " ORDER BY attempt, time, id LIMIT 1"
    ).fetchone()
    if first is None:
        return None
    batch, fields = connection.execute(
        "SELECT batch, fields FROM records WHERE stream = 'evaluations' AND hidden = 0"
        " AND kind = ? ORDER BY attempt DESC, time DESC, id DESC LIMIT 1",
        first,
    ).fetchone()
    return figure_of(json.loads(fields), batch)


def phase_of(connection: sqlite3.Connection) -> str:
    """What the newest attempt is doing: its newest open span, else what its heartbeat says."""
    attempt = connection.execute("SELECT max(attempt) FROM segments").fetchone()[0]
    opened = connection.execute(
        "SELECT name FROM open_spans WHERE attempt = ? ORDER BY start DESC LIMIT 1",
        (attempt,),
    ).fetchone()
    if opened is not None:
        return str(opened[0])
    beat = connection.execute(
        "SELECT fields FROM heartbeats WHERE attempt = ? ORDER BY time DESC LIMIT 1", (attempt,)
    ).fetchone()
    return str(json.loads(beat[0]).get("phase", "")) if beat is not None else ""


def _updated(connection: sqlite3.Connection, heartbeat: float | None, created: float) -> float:
    moments = [created, heartbeat or 0.0]
    for question in (
        "SELECT max(time) FROM records",
        "SELECT max(time) FROM episodes",
        "SELECT time FROM logs ORDER BY time DESC LIMIT 1",
    ):
        row = connection.execute(question).fetchone()
        moments.append(row[0] if row and row[0] is not None else 0.0)
    newest_metric, _ = newest(connection, "~time")
    moments.append(newest_metric or 0.0)
    return max(moments)


def _wall_s(documents: Documents, updated: float) -> float:
    run = documents.run
    total = 0.0
    for attempt in documents.attempts:
        ending = read_exit(run, attempt)
        if ending is not None:
            total += ending.wall_s
        elif (run.attempt(attempt) / "runner.json").exists():
            begun = (run.attempt(attempt) / "runner.json").stat().st_mtime
            total += max(0.0, updated - begun)
    return total
