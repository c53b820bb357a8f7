"""Requests to a running job: small files in `control/`, acknowledged in the `events` stream."""

from __future__ import annotations

import time
import uuid
from typing import get_args

from training_gym.records.documents import create_document, read_document
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError, SpecError, did_you_mean
from training_gym.spec.job import ControlKind
from training_gym.spec.settings import Settings

ACKNOWLEDGED = "control_acknowledged"
"""Kind of the event that answers a request."""


class ControlRequest(Settings):
    """One thing asked of a running job."""

    id: str
    kind: ControlKind
    requested_at: float
    """Seconds since 1970."""


def request(run: RunDirectory, kind: ControlKind) -> str:
    """Ask the job to `stop`, `stop_now` or write a `checkpoint`; returns the request's id."""
    if kind not in get_args(ControlKind):
        raise SpecError(
            f"a job cannot be asked to {kind!r}", fix=did_you_mean(kind, get_args(ControlKind))
        )
    asked = ControlRequest(id=uuid.uuid4().hex[:12], kind=kind, requested_at=time.time())
    name = f"{time.time_ns():020d}-{asked.id}.json"
    create_document(run.control / name, asked)
    return asked.id


def requests(run: RunDirectory) -> list[ControlRequest]:
    """All requests ever made, oldest first; what is no request is passed over."""
    found = []
    for path in sorted(run.control.glob("[0-9]*.json")):
        try:
            found.append(ControlRequest.read(read_document(path)))
        except (RecordsError, SpecError):
            continue  # a stranger's file: never acknowledged, and visible where it lies
    return found


def acknowledged(run: RunDirectory) -> dict[str, str]:
    """Id of every answered request to its outcome: `delivered`, `refused` or `expired`."""
    return {
        event["id"]: event["outcome"]
        for event in read_stream(run, "events")
        if event["kind"] == ACKNOWLEDGED
    }


def pending(run: RunDirectory) -> list[ControlRequest]:
    """Requests that no job has answered yet, oldest first."""
    answered = acknowledged(run)
    return [asked for asked in requests(run) if asked.id not in answered]
