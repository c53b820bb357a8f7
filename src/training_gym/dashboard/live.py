"""What is new, as it comes: one stream of events for a browser tab, and the same by asking again.

An event's id is the cursor, so whoever loses the connection goes on where they were, here or with
`/changes`. A cursor holds one of the index's for each run watched; for `*`, all runs as rows of a
list, the time up to which their rows were seen.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from training_gym.dashboard import asked
from training_gym.dashboard.answers import answer, encoded, failure
from training_gym.dashboard.state import ServerState, directory_of, state_of
from training_gym.records.index import Changes, Index, RunQuery
from training_gym.spec.errors import GymError, RecordsError

ALL = "*"
MOST_WATCHED = 50
MOST_STREAMS = 64
"""Streams at once; whoever comes later asks again and again."""
BEAT_S = 5.0
_OVERLAP_S = 5.0
"""Rows this much older than the last look are shown again: writers' clocks differ a little."""


@dataclass
class Watch:
    """Where one listener stands."""

    runs: tuple[str, ...]
    cursors: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    """Version of each row shown, for `*`."""
    since: float = 0.0

    @classmethod
    def of(cls, runs: Sequence[str], cursor: str) -> Watch:
        """Begin, or go on from a cursor; raises `RecordsError` for what is none."""
        if not cursor:
            return cls(tuple(runs))
        try:
            since, cursors = json.loads(base64.urlsafe_b64decode(cursor.encode()))
            return cls(tuple(runs), {str(k): str(v) for k, v in cursors.items()}, {}, float(since))
        except (ValueError, TypeError, AttributeError):
            raise RecordsError(
                f"{cursor!r:.60} is no cursor", fix="pass the id of the last event, or none"
            ) from None

    @property
    def cursor(self) -> str:
        """Where to go on from."""
        text = json.dumps([round(self.since, 3), self.cursors], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()

    def look(self, index: Index) -> list[Any]:
        """What is new since the last look, and move on."""
        found: list[Any] = []
        for run_id in self.runs:
            found += self._rows(index) if run_id == ALL else self._changes(index, run_id)
        return found

    def _changes(self, index: Index, run_id: str) -> list[Changes]:
        found = []
        while True:
            first = run_id not in self.cursors
            new = index.changes(run_id, self.cursors.get(run_id, ""))
            self.cursors[run_id] = new.cursor
            known = self.seen.get(run_id)
            self.seen[run_id] = new.run.version
            if not first and (_says_something(new) or known not in (None, new.run.version)):
                found.append(new)
            if not new.more:
                return found

    def _rows(self, index: Index) -> list[dict[str, Any]]:
        now = time.time()
        rows = index.runs(RunQuery(limit=10_000)).runs
        first = not self.since
        changed = [
            row
            for row in rows
            if self.seen.get(row.run_id) != row.version
            and (row.run_id in self.seen or row.updated_at > self.since - _OVERLAP_S)
        ]
        self.seen.update({row.run_id: row.version for row in rows})
        self.since = now
        return [] if first else [{**_NOTHING, "run": row} for row in changed]


_KINDS = ("metrics", "episodes", "spans", "events", "alerts", "evaluations", "annotations")
_NOTHING: dict[str, Any] = {**dict.fromkeys(_KINDS, ()), "reset": False, "num_logs": 0}


def _says_something(new: Changes) -> bool:
    return new.reset or bool(new.num_logs) or any(getattr(new, kind) for kind in _KINDS)


def changes(request: Request) -> Response:
    """The same as the stream's events since a cursor, at once."""
    watch = _watch(request, request.query_params.get("after", ""))
    deltas = watch.look(state_of(request).index)
    return answer({"cursor": watch.cursor, "deltas": deltas})


async def stream(request: Request) -> Response:
    """Server-sent events: `delta` with what is new of a run, `beat` now and then."""
    state = state_of(request)
    if len(state.streams) >= MOST_STREAMS:
        return failure(503, f"{MOST_STREAMS} pages are open already", "close some of them")
    cursor = request.headers.get("last-event-id") or request.query_params.get("after", "")
    watch = _watch(request, cursor)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(state, watch), media_type="text/event-stream", headers=headers)


async def _events(state: ServerState, watch: Watch) -> AsyncIterator[bytes]:
    token = object()
    state.streams.add(token)
    try:
        yield b"retry: 1000\n\n"
        told = -math.inf  # the first beat brings a cursor, before anything is new
        while not state.closing.is_set():
            try:
                deltas = await run_in_threadpool(watch.look, state.index)
            except GymError as error:  # a run was deleted, a disk filled: the page asks anew
                yield _event("problem", {"message": error.message, "fix": error.fix}, None)
                return
            for delta in deltas:
                yield _event("delta", delta, watch.cursor)
            if deltas or time.monotonic() - told > BEAT_S:
                told = time.monotonic()
                yield _event("beat", {}, watch.cursor)
            await _pause(state.closing, state.poll_s)
    finally:
        state.streams.discard(token)


async def _pause(closing: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(closing.wait(), seconds)
    except TimeoutError:
        return


def _event(kind: str, data: Any, cursor: str | None) -> bytes:
    """JSON has no raw line ends, so it is one line of data."""
    head = f"event: {kind}\n" + (f"id: {cursor}\n" if cursor else "")
    return head.encode() + b"data: " + encoded(data) + b"\n\n"


def _watch(request: Request, cursor: str) -> Watch:
    runs = asked.several(request, "run", MOST_WATCHED)
    for run_id in runs:
        if run_id != ALL:
            directory_of(state_of(request), run_id)
    return Watch.of(runs, cursor)


ROUTES: list[Any] = [Route("/changes", changes), Route("/stream", stream)]
