"""What may be changed: notes, tags, acknowledgements (in the run's own files) and kept views."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from training_gym.dashboard import asked
from training_gym.dashboard.answers import answer
from training_gym.dashboard.notes import Acknowledgement, NewNote, TagChange
from training_gym.dashboard.saved import NamedView, SavedView
from training_gym.dashboard.state import directory_of, identity_of, run_id_of, state_of
from training_gym.records.annotations import add_note, add_tag, remove_tag, require_tags
from training_gym.records.health.acknowledgement import acknowledge


async def notes(request: Request) -> Response:
    """Add a note to a run."""
    said = await asked.body(request, NewNote)
    run = directory_of(state_of(request), run_id_of(request))
    identity = await run_in_threadpool(add_note, run, said.text, by=identity_of(request).name)
    return answer({"id": identity}, 201)


async def tags(request: Request) -> Response:
    """Add and remove tags of a run."""
    change = await asked.body(request, TagChange)
    run = directory_of(state_of(request), run_id_of(request))
    by = identity_of(request).name
    await run_in_threadpool(require_tags, run, change.remove)  # all or nothing
    for act, tags_given in ((add_tag, change.add), (remove_tag, change.remove)):
        for tag in tags_given:
            await run_in_threadpool(act, run, tag, by=by)
    return answer({"run_id": run.run_id})


async def acknowledgements(request: Request) -> Response:
    """Say that alerts have been seen, or that they are open again."""
    said = await asked.body(request, Acknowledgement)
    run = directory_of(state_of(request), run_id_of(request))
    await run_in_threadpool(
        acknowledge,
        run,
        said.alerts,
        by=identity_of(request).name,
        note=said.note,
        withdraw=said.withdraw,
    )
    return answer({"run_id": run.run_id, "alerts": said.alerts})


def filters(request: Request) -> Response:
    """The kept views."""
    return answer({"filters": state_of(request).views.all()})


async def keep_filter(request: Request) -> Response:
    """Keep a view under a name."""
    view = await asked.body(request, SavedView)
    await run_in_threadpool(state_of(request).views.keep, view)
    return answer(view)


async def forget_filter(request: Request) -> Response:
    """Forget one."""
    named = await asked.body(request, NamedView)
    await run_in_threadpool(state_of(request).views.forget, named)
    return answer(named)


ROUTES: list[Any] = [
    Route("/runs/{run}/notes", notes, methods=["POST"]),
    Route("/runs/{run}/tags", tags, methods=["POST"]),
    Route("/runs/{run}/acknowledgements", acknowledgements, methods=["POST"]),
    Route("/filters", filters),
    Route("/filters", keep_filter, methods=["PUT"]),
    Route("/filters", forget_filter, methods=["DELETE"]),
]
