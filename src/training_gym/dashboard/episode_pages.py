"""What there is of episodes: steps, groups, pages, one episode token by token."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from training_gym.dashboard import asked
from training_gym.dashboard.answers import answer
from training_gym.dashboard.pieces import with_text
from training_gym.dashboard.state import directory_of, run_id_of, state_of
from training_gym.records.index import EpisodeQuery


def steps(request: Request) -> Response:
    """The training episodes of each batch summed up."""
    params = request.query_params
    ends = [asked.whole(request, name) if name in params else None for name in ("first", "last")]
    return answer({"steps": state_of(request).index.steps(run_id_of(request), *ends)})


def histogram(request: Request) -> Response:
    """How the episodes that match are spread."""
    params = request.query_params
    query = asked.value(EpisodeQuery, params, besides=("of", "bins"))
    bins = min(200, asked.whole(request, "bins")) if "bins" in params else 20
    of = params.get("of", "reward")
    found = state_of(request).index.histogram(run_id_of(request), query, of=of, bins=bins)
    return answer(found)


def groups(request: Request) -> Response:
    """The groups of one step."""
    stream = request.query_params.get("stream", "train")
    step = asked.whole(request, "step")
    return answer({"groups": state_of(request).index.groups(run_id_of(request), step, stream)})


def group(request: Request) -> Response:
    """One group side by side."""
    found = state_of(request).index.group(run_id_of(request), request.path_params["group"])
    return answer(found)


def episodes(request: Request) -> Response:
    """A page of the episodes that match."""
    query = asked.value(EpisodeQuery, request.query_params)
    return answer(state_of(request).index.episodes(run_id_of(request), query))


def discarded(request: Request) -> Response:
    """A page of those that taught nothing, with the reason."""
    query = asked.value(EpisodeQuery, request.query_params)
    query = query.changed(discarded=True)
    return answer(state_of(request).index.episodes(run_id_of(request), query))


def episode(request: Request) -> Response:
    """One episode with its tokens; their text where the model's tokenizer lies on this machine."""
    state, run_id = state_of(request), run_id_of(request)
    found = state.index.episode(run_id, request.path_params["episode"])
    return answer(with_text(found, directory_of(state, run_id)))


_RUN = "/runs/{run}"
ROUTES: list[Any] = [
    Route(f"{_RUN}/steps", steps),
    Route(f"{_RUN}/histogram", histogram),
    Route(f"{_RUN}/groups", groups),
    Route(f"{_RUN}/groups/{{group}}", group),
    Route(f"{_RUN}/episodes", episodes),
    Route(f"{_RUN}/discarded", discarded),
    Route(f"{_RUN}/episodes/{{episode}}", episode),
]
