"""Listing, showing and reading runs."""

import importlib
import json
import threading
import time

import pytest

from training_gym.spec.episodes import Outcome


def test_no_runs_say_how_to_make_one(command):
    answer = command("runs", "list")
    assert answer.code == 0
    assert "training-gym quickstart" in answer.err


def test_runs_are_listed_newest_first_and_bounded(command, new_run):
    for number in range(4):
        new_run(f"r{number}", created_at=1.0e9 + number, name=f"n{number}", tags=("a",))
    answer = command("runs", "list", "--limit", "3", "--json")
    (found,) = answer.objects
    assert [run["run_id"] for run in found["runs"]] == ["r3", "r2", "r1"]
    assert found["omitted"] == 1
    assert found["runs"][0] == {
        "run_id": "r3",
        "status": "running",
        "created_at": "2001-09-09T01:46:43+00:00",
        "name": "n3",
        "model": "tiny",
        "tags": ["a"],
        "path": found["runs"][0]["path"],
        "problem": "",
    }
    table = command("runs", "list", "--limit", "3")
    assert table.out.splitlines()[1].split("\t")[:2] == ["r3", "running"]
    assert "1 older runs left out" in table.err


def test_runs_are_filtered_by_status(command, new_run):
    new_run("r1")
    new_run("r2").end()
    (found,) = command("runs", "list", "--status", "completed", "--json").objects
    assert [run["run_id"] for run in found["runs"]] == ["r2"]
    answer = command("runs", "list", "--status", "complete")
    assert answer.code == 2
    assert "did you mean 'completed'?" in answer.err


def test_a_damaged_run_is_listed_with_its_problem(command, new_run):
    run = new_run("r1")
    run.files.manifest_path.write_text("{")
    (found,) = command("runs", "list", "--json").objects
    assert found["runs"][0]["problem"] != ""
    assert found["runs"][0]["created_at"] is None


def test_a_run_is_shown_with_what_the_user_set(command, new_run):
    run = new_run(name="n")
    run.step(2)
    (found,) = command("runs", "show", "r", "--json").objects
    assert (found["step"], found["num_steps"], found["status"]) == (2, 4, "running")
    assert found["run"]["model"] == "tiny"
    shown = command("runs", "show", "r1").out
    assert "recipe.num_steps = 4" in shown
    assert "recipe.seed" not in shown
    assert "2 of 4" in shown


def test_metrics_are_bounded_and_chosen_by_name(command, new_run):
    run = new_run()
    for batch in range(1, 6):
        run.step(batch, **{"reward/a": 0.5, "loss": float("nan")})
    *records, page = command("runs", "metrics", "r1", "--limit", "2", "--json").objects
    assert [record["batch"] for record in records] == [4, 5]
    assert records[0]["values"]["loss"] == "NaN"
    assert (page["shown"], page["omitted"]) == (2, 3)
    *records, _ = command("runs", "metrics", "r1", "--name", "reward*", "--json").objects
    assert records[0]["values"] == {"reward_mean": 0.1, "reward/a": 0.5}
    table = command("runs", "metrics", "r1", "--name", "reward_mean").out.splitlines()
    assert table[0] == "batch\treward_mean"
    assert table[-1] == "5\t0.5"


def test_a_name_that_no_metric_has_is_told_with_those_there_are(command, new_run):
    run = new_run()
    run.step(1)
    answer = command("runs", "metrics", "r1", "--name", "reword*")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines() == [
        "error: no metric is called 'reword*'",
        "fix: known: reward_mean, sampled_tokens, step_seconds",
    ]


def test_a_stream_without_episodes_says_so(command, new_run):
    run = new_run()
    run.episode("plain")
    answer = command("runs", "episodes", "r1", "--stream", "tain")
    assert (answer.out, answer.err) == ("", "no episodes of 'tain'\n")


def test_a_wide_table_of_metrics_says_what_it_leaves_out(command, new_run):
    run = new_run()
    run.step(1, **{f"m{number}": 1.0 for number in range(9)})
    answer = command("runs", "metrics", "r1")
    assert answer.out.splitlines()[0].startswith("batch\treward_mean")
    assert "showing 6 of 12 metrics" in answer.err


def test_a_cursor_reads_on_without_gap_or_repetition(command, new_run):
    run = new_run()
    for batch in range(1, 4):
        run.step(batch)
    *_, page = command("runs", "metrics", "r1", "--json").objects
    for batch in range(4, 9):
        run.step(batch)
    seen = []
    cursor = page["cursor"]
    for _ in range(4):
        *records, page = command(
            "runs", "metrics", "r1", "--since", cursor, "--limit", "2", "--json"
        ).objects
        seen += [record["batch"] for record in records]
        cursor = page["cursor"]
    assert seen == [4, 5, 6, 7, 8]


def test_a_cursor_reads_on_among_the_episodes_of_one_stream(command, new_run):
    run = new_run()
    start = command("runs", "episodes", "r1", "--json").objects[-1]["cursor"]
    for step in range(3):
        run.episode("t", step=step)
        run.episode("e", step=step, stream="eval:held_out")
    seen, cursor = [], start
    for _ in range(3):
        *records, page = command(
            *("runs", "episodes", "r1", "--stream", "held_out", "--since", cursor),
            *("--limit", "1", "--json"),
        ).objects
        seen += [record["optimizer_step"] for record in records]
        cursor = page["cursor"]
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("since", ["soon", "c-!!", "10x"])
def test_an_unreadable_since_is_a_usage_error(command, new_run, since):
    new_run()
    answer = command("runs", "metrics", "r1", "--since", since)
    assert answer.code == 2
    assert repr(since) in answer.err


def test_since_takes_durations_and_times(command, new_run):
    run = new_run()
    run.step(1)
    assert len(command("runs", "metrics", "r1", "--since", "1h", "--json").objects) == 2
    assert len(command("runs", "metrics", "r1", "--since", "0s", "--json").objects) == 1
    assert len(command("runs", "metrics", "r1", "--since", "2001-01-01", "--json").objects) == 2
    assert (
        len(command("runs", "metrics", "r1", "--since", "2999-01-01T00:00Z", "--json").objects) == 1
    )


def test_episodes_are_shown_with_their_rewards_and_harmless(command, new_run):
    run = new_run()
    run.episode("plain", step=1)
    run.episode("evil \x1b]0;title\x07", step=2, value=None)
    shown = command("runs", "episodes", "r1").out
    assert "\x1b" not in shown
    assert "\\x1b]0;title\\x07" in shown
    assert "reward 0.5 (a 0.25)" in shown
    assert "not judged" in shown
    first, second, _ = command("runs", "episodes", "r1", "--json").objects
    assert first["messages"] == [
        {"role": "user", "text": "Why?"},
        {"role": "assistant", "text": "plain"},
    ]
    assert (first["reward"], first["components"], first["answer"]) == (0.5, {"a": 0.25}, "x")
    assert (second["reward"], second["components"]) == (None, {})


def test_an_episode_that_failed_says_why(command, new_run):
    run = new_run()
    run.episode("x", value=None, outcome=Outcome(status="infrastructure_failed", reason="lost"))
    assert "\nreason: lost\n" in command("runs", "episodes", "r1").out


def test_logs_are_bounded_and_harmless(command, new_run):
    run = new_run()
    run.log("one", "two \x1b[2J", "three")
    answer = command("runs", "logs", "r1", "--limit", "2")
    assert answer.out == "two \\x1b[2J\nthree\n"
    assert "1 older lines left out" in answer.err
    *lines, page = command("runs", "logs", "r1", "--json").objects
    assert [line["text"] for line in lines] == ["one", "two \x1b[2J", "three"]
    assert lines[0]["source"] == "stdout"
    assert page["omitted"] == 0


def test_following_logs_ends_with_the_run(command, new_run, monkeypatch):
    module = importlib.import_module("training_gym.cli.runs.logs")
    monkeypatch.setattr(module, "POLL_S", 0.01)
    run = new_run()
    run.log("before")

    def later():
        for number in range(5):
            run.log(f"line {number}")
            time.sleep(0.02)
        run.end()

    writer = threading.Thread(target=later)
    writer.start()
    answer = command("runs", "logs", "r1", "--follow")
    writer.join()
    assert answer.code == 0
    assert answer.out.splitlines() == ["before", *(f"line {number}" for number in range(5))]


def test_stopping_asks_the_run(command, new_run):
    run = new_run()
    (found,) = command("runs", "stop", "r1", "--json").objects
    assert found == {
        "schema": "runs.stop/1",
        "run_id": "r1",
        "status": "running",
        "asked": True,
        "now": False,
    }
    requests = [json.loads(file.read_text()) for file in run.files.control.glob("*.json")]
    assert [request["kind"] for request in requests] == ["stop"]


def test_stopping_a_run_that_has_ended_says_so(command, new_run):
    new_run().end()
    answer = command("runs", "stop", "r1", "--now")
    assert answer.code == 0
    assert "it has ended already: completed" in answer.err


def test_several_runs_with_one_beginning_are_told_apart(command, new_run):
    new_run("ra")
    new_run("rb")
    answer = command("runs", "show", "r")
    assert answer.code == 11
    assert "2 runs begin with 'r'" in answer.err


def test_an_unknown_run_is_told_with_the_nearest_few(command, new_run):
    for number in range(9):
        new_run(f"2026-haiku-{number}", created_at=1.0e9 + number)
    near = command("status", "2025-haiku-3")
    assert near.code != 0
    assert "did you mean '2026-haiku-3'" in near.err
    far = command("status", "zzz")
    assert "2026" not in far.err.split("fix:")[1]
    assert "training-gym runs list" in far.err
