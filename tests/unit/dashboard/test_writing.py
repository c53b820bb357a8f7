from pathlib import Path
from typing import Any

import pytest


def say(server: Any, path: str, body: object, method: str = "POST") -> int:
    return int(server.ask(f"/api/v1/{path}", method=method, body=body).status)


def test_notes_and_tags_lie_in_the_runs_own_files(server: Any) -> None:
    assert say(server, "runs/good/notes", {"text": "look at step 3"}) == 201
    assert say(server, "runs/good/tags", {"add": ["best one"], "remove": ["demo"]}) == 200
    found = server.api("runs/good")
    assert [(note["text"], note["by"]) for note in found["notes"]] == [("look at step 3", "ada")]
    assert "best one" in found["row"]["tags"]
    assert "demo" not in found["row"]["tags"]
    written = (server.home / "runs" / "good" / "streams" / "annotations").glob("viewer.*.jsonl")
    assert any("look at step 3" in path.read_text() for path in written)


def test_an_alert_is_acknowledged_and_opened_again(server: Any) -> None:
    from training_gym.records.recorder import Recorder
    from training_gym.records.run_directory import RunDirectory

    run = RunDirectory(server.home / "runs" / "good")
    with Recorder(run, writer="engine2", attempt=1) as recorder:
        recorder.alert("grad_norm", "gradient norm 9 times its median", severity="warning")
    (alert,) = (a for a in server.api("runs/good/alerts")["alerts"] if a["rule"] == "grad_norm")
    body = {"alerts": [alert["id"]], "note": "a known spike"}
    assert say(server, "runs/good/acknowledgements", body) == 200
    (seen,) = (a for a in server.api("runs/good/alerts")["alerts"] if a["id"] == alert["id"])
    assert (seen["state"], seen["acknowledged_by"]) == ("acknowledged", "ada")
    assert say(server, "runs/good/acknowledgements", {**body, "withdraw": True}) == 200
    (again,) = (a for a in server.api("runs/good/alerts")["alerts"] if a["id"] == alert["id"])
    assert again["state"] == "open"


def test_views_are_kept_replaced_and_forgotten(server: Any) -> None:
    view = {"name": "mine", "page": "runs", "query": {"status": "running"}}
    assert say(server, "filters", view, "PUT") == 200
    assert say(server, "filters", {**view, "query": {"status": "failed"}}, "PUT") == 200
    assert server.api("filters")["filters"] == [{**view, "query": {"status": "failed"}}]
    assert say(server, "filters", {"name": "mine", "page": "runs"}, "DELETE") == 200
    assert server.api("filters")["filters"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("runs/good/notes", {"text": ""}),
        ("runs/good/notes", {"text": "x" * 20_001}),
        ("runs/good/tags", {"add": ["x"] * 21}),
        ("runs/good/tags", {"add": [""]}),
        ("runs/good/tags", {"add": ["x"], "remove": ["nosuch"]}),
        ("runs/good/acknowledgements", {"alerts": []}),
    ],
)
def test_what_cannot_be_written_is_refused(server: Any, path: str, body: object) -> None:
    assert say(server, path, body) == 400


def test_custom_panels_are_read(server: Any) -> None:
    write(server.home, '[[panel]]\ntitle = "Both"\nmetrics = ["entropy", "reward/*"]\n')
    found = server.api("panels")
    assert found["problem"] is None
    assert found["panels"][0]["metrics"] == ["entropy", "reward/*"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[panel]", "is not TOML"),
        ('[[pannel]]\ntitle = "a"\n', "pannel"),
        ('[[panel]]\ntitle = "a"\n', "panel 1"),
        ('[[panel]]\ntitle = "a"\nmetrics = ["x"]\ncolour = "red"\n', "colour"),
        ('[[panel]]\ntitle = "a"\nmetrics = ["x"]\nkind = "pie"\n', "panel 1"),
        ("panel = 3\n", "list"),
        ('[[panel]]\nkey = "a"\ntitle = "a"\nmetrics = ["x"]\n', "'key'"),
    ],
)
def test_what_is_wrong_with_panels_is_told_in_two_lines(server: Any, text: str, told: str) -> None:
    write(server.home, text)
    problem = server.api("panels")["problem"]
    assert told in problem["message"]
    assert problem["fix"]


def write(home: Path, text: str) -> None:
    (home / "dashboard").mkdir(exist_ok=True)
    (home / "dashboard" / "panels.toml").write_text(text)
