import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from training_gym.cli.app import app as commands


def test_runs_are_listed_and_filtered(reader: Any) -> None:
    page = reader.api("runs")
    while page["pending"]:
        page = reader.api("runs")
    assert {row["run_id"] for row in page["runs"]} == {"good", "hostile"}
    only = reader.api("runs?text=good&status=completed&status=running")
    assert [row["run_id"] for row in only["runs"]] == ["good"]


def test_one_run_says_which_charts_to_draw(reader: Any) -> None:
    found = reader.api("runs/good")
    assert found["row"]["step"] == 4
    assert len(found["charts"]) == 8
    charts = {chart["key"]: chart for chart in found["charts"]}
    assert charts["reward"]["metrics"] == ["reward_mean"]
    assert charts["step_time"]["kind"] == "stack"


def test_curves_come_whole(reader: Any) -> None:
    found = reader.api("series?run=good&name=reward_mean&name=entropy&x=tokens")["series"]
    assert {curve["name"] for curve in found} == {"reward_mean", "entropy"}
    assert all(len(curve["x"]) == len(curve["mean"]) == 4 for curve in found)


def test_an_episode_has_its_tokens(reader: Any) -> None:
    row = reader.api("runs/good/episodes?stream=train&limit=1")["episodes"][0]
    found = reader.api(f"runs/good/episodes/{row['id']}")
    trajectory = found["trajectories"][0]
    lengths = {
        len(trajectory[name]) for name in ("ids", "flags", "logprobs", "trained", "versions")
    }
    assert len(lengths) == 1
    assert "entropy" in trajectory["columns"]
    assert found["row"]["group"] == row["group"]
    group = reader.api(f"runs/good/groups/{row['group']}")
    assert len(group["episodes"]) == 3


def test_filters_reach_the_index(reader: Any) -> None:
    everything = reader.api("runs/good/episodes?stream=train")["total"]
    some = reader.api("runs/good/episodes?stream=train&reward=0.5..&step=2..3")
    assert everything == 24
    assert 0 < some["total"] < everything
    assert all(row["reward"] >= 0.5 and row["step"] in (2, 3) for row in some["episodes"])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("runs?foo=1", "no parameter"),
        ("runs?limit=x", "limit"),
        ("runs/good/episodes?reward=a..b", "no range"),
        ("runs/good/logs?regex=(", "("),
        ("runs/good/episodes?reward=1..0", "nothing lies between"),
        ("runs/good/episodes?reward=nan..1", "no bound"),
        ("runs/good/histogram?length=9..2", "nothing lies between"),
        ("runs/good/episodes?stream=nope", "no stream"),
        ("runs/good/steps?first=3&last=2", "nothing lies between"),
        ("runs/good/timeline?first_step=3&last_step=2", "nothing lies between"),
        ("runs/good/timeline?start=9&stop=8", "nothing lies between"),
        ("runs/good/timeline?lanes=nope", "no lane"),
        ("runs/good/timeline?first_step=99", "no batch 99"),
        ("runs/good/logs?step=-1", "step"),
        ("runs/good/flipped?suite=held_out&before=4&after=4", "itself"),
        ("series?run=good&name=reward_mean&start=5&stop=2", "nothing lies between"),
        ("runs/good/groups", "step"),
        ("series?run=good", "name"),
        ("changes", "run"),
        ("changes?run=good&after=x", "cursor"),
        ("runs/nobody", "nobody"),
        ("runs/good/episodes/nobody", "nobody"),
    ],
)
def test_what_cannot_be_asked_is_told_in_two_lines(reader: Any, path: str, told: str) -> None:
    answer = reader.ask(f"/api/v1/{path}")
    assert answer.status in (400, 404)
    assert told in answer.json["error"]["message"]
    assert answer.json["error"]["fix"]


def test_every_page_has_an_endpoint(reader: Any) -> None:
    for path in (
        "runs/good/timeline", "runs/good/logs", "runs/good/evaluations", "runs/good/alerts",
        "runs/good/facets", "runs/good/discarded", "runs/good/histogram?bins=5", "panels",
        "runs/good/steps", "compare?run=good&run=hostile", "metric-names?run=good",
        "differences?before=good&after=hostile", "runs/good/groups?step=1",
        "runs/good/flipped?suite=held_out&before=0&after=4", "runs/good/trace",
    ):  # fmt: skip
        assert reader.api(path), path


def test_a_trace_opens_in_a_trace_viewer(reader: Any) -> None:
    events = reader.api("runs/good/trace")["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert spans
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)


def test_hostile_content_arrives_as_data(reader: Any) -> None:
    for row in reader.api("runs/hostile/episodes?limit=50")["episodes"]:
        answer = reader.ask(f"/api/v1/runs/hostile/episodes/{row['id']}")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        json.loads(answer.body)
    assert reader.ask("/api/v1/runs/hostile/logs").status == 200


def test_numbers_that_json_has_not_are_text(reader: Any) -> None:
    from training_gym.dashboard.answers import answer

    body = answer({"a": math.nan, "b": math.inf, "c": -math.inf}).body
    assert json.loads(bytes(body)) == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("runs/good/evaluations", None),
        ("runs/good/timeline", ["timeline", "good"]),
        ("compare?run=good&run=hostile", ["compare", "good", "hostile"]),
        ("differences?before=good&after=hostile", ["compare", "good", "hostile", "--diff"]),
        ("runs/good/alerts", ["alerts", "good"]),
    ],
)
def test_pages_say_what_commands_say(
    reader: Any, path: str, command: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = reader.api(path)
    if command is None:
        assert page["evaluations"]
        return
    monkeypatch.setenv("TRAINING_GYM_HOME", str(reader.home))
    said = CliRunner().invoke(commands, [*command, "--json"])
    told = json.loads(said.stdout.splitlines()[-1])
    shared = told.keys() & page.keys()
    assert len(shared) >= 2
    assert {key: told[key] for key in shared} == {key: page[key] for key in shared}
