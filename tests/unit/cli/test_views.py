"""Every verb that looks at runs: its JSON fits its schema, and its text is harmless."""

import json

import pytest

from training_gym.cli.schema_values import VALUES
from training_gym.cli.schemas import SCHEMAS
from training_gym.cli.views.schema import json_schema
from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.spec.home import runs_directory

SMALL = {"steps": 4, "groups": 2, "group_size": 3, "evaluation_tasks": 3, "answer_words": 10}


@pytest.fixture
def demo(command):
    def write(kind="healthy", run_id="demo"):
        shape = DemoShape(kind=kind, **SMALL)
        return write_demo_run(runs_directory(), shape, run_id=run_id).run_id

    return write


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "status RUN",
        "metrics RUN --name reward*",
        "metrics RUN --x tokens --points 2",
        "episodes RUN --limit 2",
        "episodes RUN --discarded --order reward --ascending",
        "timeline RUN",
        "timeline RUN --step 2..3 --lane trainer",
        "logs RUN --level warning",
        "logs RUN --grep step",
        "compare RUN other",
        "compare RUN other --diff",
        "changes RUN",
        "runs tag RUN good",
        "runs note RUN hello",
        "runs gc --checkpoints 1",
        "schema",
        "runs wait RUN --until step>=4",
    ],
)
def test_json_fits_its_schema(command, demo, words):
    jsonschema = pytest.importorskip("jsonschema")
    demo(), demo("resumed", "other")
    answer = command(*words.replace("RUN", "demo").split(), "--json")
    assert answer.code == 0, answer.err
    assert answer.objects
    for found in answer.objects:
        jsonschema.validate(found, json_schema(found["schema"]))


@pytest.mark.parametrize(
    "words",
    ["status", "episodes demo", "logs demo", "metrics demo", "timeline demo", "changes demo"],
)
def test_hostile_text_cannot_act_on_the_terminal(command, demo, words):
    demo("hostile")
    answer = command(*words.split())
    assert answer.code == 0
    assert "\x1b" not in answer.out + answer.err
    assert "\x07" not in answer.out


def test_an_episode_is_shown_whole(command, demo):
    demo()
    first = command("episodes", "demo", "--limit", "1", "--json").objects[0]["id"]
    assert "The answer is" in command("episodes", "demo", first).out
    found = command("episodes", "demo", first, "--tokens", "--json").objects[0]
    assert len(found["trajectories"][0]["ids"]) > 10


def test_pages_of_episodes_follow_each_other(command, demo):
    demo()
    seen, cursor = [], ""
    while True:
        *rows, page = command(
            "episodes", "demo", "--limit", "7", "--page", cursor, "--json"
        ).objects
        seen += [row["id"] for row in rows]
        cursor = page["cursor"]
        if not cursor:
            break
    assert len(seen) == len(set(seen)) == page["total"]


def test_changes_bring_what_is_new(command, demo, new_run):
    run = new_run()
    cursor = command("changes", run.id, "--json").objects[0]["cursor"]
    run.step(1, reward_mean=0.25)
    found = command("changes", run.id, "--since", cursor, "--json").objects[0]
    assert [metric["values"]["reward_mean"] for metric in found["metrics"]] == [0.25]
    again = command("changes", run.id, "--since", found["cursor"], "--json").objects[0]
    assert again["metrics"] == []


@pytest.mark.parametrize("words", ["logs", "episodes", "changes", "alerts", "runs metrics"])
def test_since_means_the_same_everywhere(command, demo, words):
    demo()

    def found(since):
        answer = command(*words.split(), "demo", "--since", since, "--json")
        assert answer.code == 0, answer.err
        listed = answer.objects[0] if words in ("changes", "alerts") else {"all": answer.objects}
        return [
            entry
            for part in listed.values()
            for entry in (part if isinstance(part, list) else ())
            if not str(entry.get("schema", "")).endswith("page/1")
        ]

    assert found("2001-01-01") or words == "alerts"  # of a healthy run
    assert found("2999-01-01T00:00Z") == []
    wrong = command(*words.split(), "demo", "--since", "yesterday")
    assert (wrong.code, "neither a duration" in wrong.err) == (2, True)


def test_lines_that_come_later_are_found_by_the_pages_cursor(command, new_run):
    run = new_run()
    run.recorder.log("first")
    run.flush()
    *lines, page = command("logs", run.id, "--json").objects
    assert [line["text"] for line in lines] == ["first"]
    run.recorder.log("second")
    run.flush()
    *lines, page = command("logs", run.id, "--since", page["newer"], "--json").objects
    assert [line["text"] for line in lines] == ["second"]
    assert len(command("logs", run.id, "--since", page["newer"], "--json").objects) == 1


def test_status_tells_the_verdict_by_its_exit_code(command, demo, new_run):
    assert command("status", demo(), "--exit-code").code == 0
    run = new_run()
    run.recorder.alert("stall", "nothing moves", severity="critical")
    run.flush()
    assert command("status", run.id, "--exit-code").code == 25


@pytest.mark.parametrize(
    ("until", "code"),
    [("reward_mean > 0.1", 0), ("status == 'completed'", 0), ("step > 99", 26), ("step >", 2)],
)
def test_waiting_for_a_condition(command, demo, until, code):
    assert command("runs", "wait", demo(), "--until", until).code == code


def test_waiting_for_a_condition_has_a_limit(command, new_run):
    run = new_run()
    assert command("runs", "wait", run.id, "--until", "step > 9", "--timeout", "0").code == 23


@pytest.mark.parametrize(
    "words",
    [
        "episodes demo --reward high",
        "episodes demo --order colour",
        "episodes demo --status great",
        "metrics demo --x colour",
        "metrics demo --name reward_mean --start 5 --stop 2",
        "metrics demo --start 5 --stop 2 --json",
        "metrics demo --start 1",
        "metrics demo --name reword",
        "metrics demo --name reword --json",
        "metrics demo --name reward_mean --name zzz*",
        "episodes demo --tokens",
        "episodes demo --tokens --json",
        "episodes demo x --stream train",
        "episodes demo --stream nope",
        "episodes demo --stream nope --json",
        "timeline demo --lane nope",
        "timeline demo --lane trainer --lane nope --json",
        "timeline demo --step 99",
        "timeline demo --step ..0",
        "logs demo --step -1",
        "runs tag demo --remove nosuch",
        "logs demo --level loud",
        "logs demo --grep (",
        "compare demo --diff",
        "export demo --format papyrus",
        "schema papyrus",
        "demo-run papyrus",
    ],
)
def test_what_cannot_be_is_told_in_two_lines(command, demo, words):
    demo()
    answer = command(*words.split())
    assert answer.code not in (0, 70)
    if "--json" in words:
        (told,) = answer.objects
        assert told["schema"] == "error/1"
        assert told["error"]["fix"]
        return
    assert answer.out == ""
    assert "error: " in answer.err
    assert "fix: " in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("episodes demo --stream eval:held_oot", "did you mean 'held_out'?"),
        ("episodes demo --stream eval:held_oot --json", "did you mean 'held_out'?"),
        ("logs demo --source stdoot", "did you mean 'stdout'?"),
        ("timeline demo --lane sync", ""),
    ],
)
def test_what_may_come_later_is_answered_in_words(command, demo, words, said):
    demo()
    answer = command(*words.split())
    assert answer.code == 0
    assert said in answer.err


def test_tags_are_changed_all_or_none(command, demo):
    run = demo()
    assert command("runs", "tag", run, "good", "--remove", "nosuch").code == 11
    assert "good" not in command("runs", "tag", run).out


def test_tags_and_notes_lie_in_the_run(command, demo):
    run = demo()
    assert command("runs", "tag", run, "good", "--remove", "demo").out.split() == [
        "healthy",
        "good",
    ]
    command("runs", "note", run, "see step 3")
    (note,) = command("runs", "note", run, "--json").objects[0]["notes"]
    assert note["text"] == "see step 3"
    assert command("runs", "note", run, "--remove", note["id"], "--json").objects[0]["notes"] == []
    assert [row["run_id"] for row in command("status", "--tag", "good", "--json").objects[:-1]] == [
        run
    ]


def test_an_export_names_its_files(command, demo, tmp_path):
    demo()
    answer = command("export", "demo", "--format", "csv", "--to", str(tmp_path / "out"), "--json")
    assert len(answer.objects[0]["files"]) == 3


def test_every_schema_is_documented_and_whole():
    for name, value in VALUES.items():
        assert SCHEMAS[name].keys() == value.model_fields.keys()
    for name in SCHEMAS:
        assert json.dumps(json_schema(name))


@pytest.mark.parametrize("verb", ["resume", "fork"])
def test_a_demonstration_cannot_go_on(command, demo, verb):
    answer = command("runs", verb, demo())
    assert answer.code == 11
    assert "demo was made as a demonstration and never trained here" in answer.err
    assert "training-gym train" in answer.err


@pytest.mark.parametrize("verb", ["resume", "fork"])
def test_an_imported_run_cannot_go_on(command, new_run, verb):
    run = new_run()
    document = json.loads(run.files.manifest_path.read_text())
    document["run"] = {"model": "", "recipe": {}, "imported": {}}
    run.files.manifest_path.write_text(json.dumps(document))
    answer = command("runs", verb, run.id)
    assert answer.code == 11
    assert "was imported from another tracker and never trained here" in answer.err
