"""What there is of runs: lists, one run, its curves, timeline, logs, evaluations and alerts."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from training_gym.dashboard import asked
from training_gym.dashboard.answers import answer
from training_gym.dashboard.charts import charts_of
from training_gym.dashboard.panels import read_panels
from training_gym.dashboard.state import directory_of, run_id_of, state_of
from training_gym.dashboard.trace import chrome_trace
from training_gym.records.index import (
    EpisodeQuery,
    LogQuery,
    MetricName,
    Overview,
    RunQuery,
    SeriesQuery,
    TimelineQuery,
)
from training_gym.spec.errors import GymError

MOST_RUNS = 50
MOST_REWARDS = 100_000
"""Batches whose rewards are not merged with others before the first and last are compared."""
FACET_EPISODES = 1000
"""Newest episodes whose environments and components are offered as filters."""


def runs(request: Request) -> Response:
    """The runs that match."""
    return answer(state_of(request).index.runs(asked.value(RunQuery, request.query_params)))


def overview(request: Request) -> Response:
    """One run: its row, documents and checkpoints, and which charts to draw."""
    index, run_id = state_of(request).index, run_id_of(request)
    found: Overview = index.overview(run_id)
    names = [metric.name for metric in index.metric_names(run_id)]
    return answer({**found.model_dump(), "charts": charts_of(names)})


def panels(request: Request) -> Response:
    """The custom panels; what is wrong with their file is part of the answer."""
    state, problem = state_of(request), None
    try:
        found = read_panels(state.folder / "panels.toml")
    except GymError as error:
        found, problem = (), {"message": error.message, "fix": error.fix}
    path = str(state.folder / "panels.toml")
    return answer({"panels": found, "path": path, "problem": problem})


def series(request: Request) -> Response:
    """Curves of one or several runs."""
    run_ids = asked.several(request, "run", MOST_RUNS)
    params = request.query_params
    query = SeriesQuery(
        names=tuple(asked.several(request, "name", 500)),
        x=params.get("x", "batch"),
        max_points=params.get("max_points", 1500),
        start=params.get("start"),
        stop=params.get("stop"),
    )
    return answer({"series": state_of(request).index.series(run_ids, query)})


def metric_names(request: Request) -> Response:
    """Every metric of one or several runs, by name."""
    index = state_of(request).index
    found: dict[str, MetricName] = {}
    for run_id in asked.several(request, "run", MOST_RUNS):
        for metric in index.metric_names(run_id):
            known = found.get(metric.name)
            if known is None or known.count < metric.count:
                found[metric.name] = metric
    return answer({"metrics": [found[name] for name in sorted(found)]})


def compare(request: Request) -> Response:
    """Several runs beside each other."""
    run_ids = asked.several(request, "run", MOST_RUNS)
    return answer(state_of(request).index.compare(run_ids, request.query_params.getlist("metric")))


def differences(request: Request) -> Response:
    """How one run's definition and code differ from another's."""
    before, after = (request.query_params.get(name, "") for name in ("before", "after"))
    return answer(state_of(request).index.config_difference(before, after))


def timeline(request: Request) -> Response:
    """Measured spans, and what an hour costs where the run knows its cost."""
    index, run_id = state_of(request).index, run_id_of(request)
    found = index.timeline(run_id, _timeline_query(request))
    row = index.overview(run_id).row
    known = row.cost is not None and row.wall_s > 0
    per_hour = row.cost / row.wall_s * 3600 if known and row.cost is not None else None
    return answer({**found.model_dump(), "cost_per_hour": per_hour, "currency": ""})


def trace(request: Request) -> Response:
    """The same spans for a trace viewer."""
    index, run_id = state_of(request).index, run_id_of(request)
    found = index.timeline(run_id, _timeline_query(request))
    name = f'attachment; filename="{run_id}.trace.json"'
    return answer(chrome_trace(found), headers={"content-disposition": name})


def logs(request: Request) -> Response:
    """A page of lines."""
    query = asked.value(LogQuery, request.query_params)
    return answer(state_of(request).index.logs(run_id_of(request), query))


def evaluations(request: Request) -> Response:
    """Every evaluation, by suite, then step."""
    found = state_of(request).index.evaluations(run_id_of(request))
    return answer({"evaluations": found})


def flipped(request: Request) -> Response:
    """Tasks that one evaluation solved and another did not."""
    params = request.query_params
    found = state_of(request).index.flipped(
        run_id_of(request),
        params.get("suite", ""),
        asked.whole(request, "before"),
        asked.whole(request, "after"),
        float(asked.bounds(params.get("threshold", "0.5"), "threshold")["low"] or 0.0),
    )
    return answer(found)


def alerts(request: Request) -> Response:
    """The verdict and every alert."""
    state, run_id = state_of(request), run_id_of(request)
    query = SeriesQuery(names=("reward_mean",), max_points=MOST_REWARDS)

    def rewards() -> tuple[float, ...]:
        found = state.index.series((run_id,), query)
        return found[0].mean if found else ()

    row = state.index.changes(run_id).run
    return answer(state.health.of(directory_of(state, run_id), row, rewards))


def facets(request: Request) -> Response:
    """What a run's episodes can be filtered by."""
    index, run_id = state_of(request).index, run_id_of(request)
    newest = index.episodes(run_id, EpisodeQuery(limit=FACET_EPISODES)).episodes
    suites = {f"eval:{row.suite}" for row in index.evaluations(run_id)}
    return answer(
        {
            "streams": sorted({row.stream for row in newest} | suites),
            "environments": sorted({row.environment for row in newest if row.environment}),
            "components": sorted({name for row in newest for name in row.components}),
        }
    )


def _timeline_query(request: Request) -> TimelineQuery | None:
    """None, the newest steps, where the address asks for nothing in particular."""
    params = request.query_params
    query = asked.value(TimelineQuery, params)
    return query if any(name in params for name in TimelineQuery.model_fields) else None


_RUN = "/runs/{run}"
ROUTES: list[Any] = [
    Route("/runs", runs),
    Route("/panels", panels),
    Route("/series", series),
    Route("/metric-names", metric_names),
    Route("/compare", compare),
    Route("/differences", differences),
    Route(_RUN, overview),
    Route(f"{_RUN}/timeline", timeline),
    Route(f"{_RUN}/trace", trace),
    Route(f"{_RUN}/logs", logs),
    Route(f"{_RUN}/evaluations", evaluations),
    Route(f"{_RUN}/flipped", flipped),
    Route(f"{_RUN}/alerts", alerts),
    Route(f"{_RUN}/facets", facets),
]
