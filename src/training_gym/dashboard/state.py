"""What every endpoint works with, and which run an address names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from training_gym.dashboard.access import Access, Identity
from training_gym.dashboard.assessments import Assessments
from training_gym.dashboard.saved import SavedViews
from training_gym.records.index import Index
from training_gym.records.run_directory import RunDirectory, existing_run


@dataclass(frozen=True)
class ServerState:
    """One server's parts."""

    index: Index
    runs: Path
    folder: Path
    """`$TRAINING_GYM_HOME/dashboard`: views, panels, the secret."""
    views: SavedViews
    access: Access
    health: Assessments = field(default_factory=Assessments)
    poll_s: float = 1.0
    """Seconds between two looks at the runs that somebody watches."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server ends: streams end then."""
    streams: set[object] = field(default_factory=set)
    """One entry for each open stream."""


def state_of(request: Request) -> ServerState:
    """The server's parts."""
    state: ServerState = request.app.state.server
    return state


def identity_of(request: Request) -> Identity:
    """Who asks; the guard has let nobody else through."""
    identity: Identity = request.scope["state"]["identity"]
    return identity


def run_id_of(request: Request) -> str:
    """The run in the address; raises `RecordsError` if there is none."""
    run_id: str = request.path_params["run"]
    directory_of(state_of(request), run_id)
    return run_id


def directory_of(state: ServerState, run_id: str) -> RunDirectory:
    """A run's folder; raises `RecordsError` for what is no run of this home."""
    return existing_run(state.runs, run_id)
