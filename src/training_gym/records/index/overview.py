"""One run as its first page shows it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import Any

from training_gym.records.checkpoints import list_checkpoints
from training_gym.records.documents import read_document_if_any
from training_gym.records.index.column_reading import lanes
from training_gym.records.index.curves import metric_names
from training_gym.records.index.headline import headline
from training_gym.records.index.record_reading import notes_of
from training_gym.records.index.run_values import AttemptRow, CheckpointRow, Overview, RunRow
from training_gym.records.index.standing import Documents
from training_gym.records.results import read_exit
from training_gym.records.run_directory import RunDirectory


def overview(documents: Documents, connection: sqlite3.Connection, row: RunRow) -> Overview:
    """Everything about the run that is no series, episode or log."""
    run, manifest = documents.run, dict(documents.manifest)
    names = [metric.name for metric in metric_names(connection)]
    return Overview(
        row=row,
        manifest=manifest,
        plan=read_document_if_any(run.plan_path),
        environment=read_document_if_any(run.environment_path),
        result=read_document_if_any(run.result_path),
        attempts=_attempts(run, connection),
        checkpoints=_checkpoints(run),
        notes=tuple(notes_of(connection)),
        metrics=headline(names),
        counts=dict(
            connection.execute("SELECT stream, sum(records) FROM segments GROUP BY stream")
        ),
        dropped=_dropped(connection),
        damaged=connection.execute("SELECT coalesce(sum(damaged), 0) FROM segments").fetchone()[0],
        hidden=_hidden(connection),
        parents=tuple(str(parent) for parent in manifest.get("parents", ())),
    )


def _attempts(run: RunDirectory, connection: sqlite3.Connection) -> tuple[AttemptRow, ...]:
    started: dict[int, tuple[float, dict[str, Any]]] = {
        attempt: (moment, json.loads(fields))
        for attempt, moment, fields in connection.execute(
            "SELECT attempt, time, fields FROM records"
            " WHERE stream = 'events' AND kind = 'attempt_started' ORDER BY time DESC"
        )
    }
    rows = []
    for attempt in sorted({*run.attempts(), *started}):
        ending = read_exit(run, attempt)
        begun, fields = started.get(attempt, (None, {}))
        point = fields.get("resumed_from")
        step = point.get("optimizer_step") if isinstance(point, dict) else point
        rows.append(
            AttemptRow(
                attempt=attempt,
                started_at=ending.started_at if ending is not None else begun,
                ended_at=None if ending is None else ending.ended_at,
                exit_code=None if ending is None else ending.exit_code,
                reason="" if ending is None else ending.reason,
                resumed_from=step if isinstance(step, int) else None,
            )
        )
    return tuple(rows)


def _checkpoints(run: RunDirectory) -> tuple[CheckpointRow, ...]:
    return tuple(
        CheckpointRow(
            step=found.step,
            batch=found.counters.batch,
            kind=found.kind,
            created_at=found.created_at,
            path=str(found.folder),
            size_bytes=sum(file.size for file in found.files),
            sha256=found.sha256,
        )
        for found in list_checkpoints(run)
    )


def _dropped(connection: sqlite3.Connection) -> dict[str, int]:
    dropped: Counter[str] = Counter()
    for (fields,) in connection.execute(
        "SELECT fields FROM records WHERE stream = 'events' AND kind = 'records_dropped'"
    ):
        dropped.update(json.loads(fields).get("streams") or {})
    return dict(dropped)


def _hidden(connection: sqlite3.Connection) -> int:
    rows = sum(lane.kept.count(0) for lane in lanes(connection) if lane.kept is not None)
    count = connection.execute("SELECT count(*) FROM episodes WHERE hidden = 1").fetchone()[0]
    return rows + int(count)
