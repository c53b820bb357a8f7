import os
import subprocess
import sys
import time

import pytest

from training_gym.records import status as module
from training_gym.records.checkpoints import CheckpointInfo, write_checkpoint
from training_gym.records.documents import read_document, write_document
from training_gym.records.processes import identify, is_alive, this_process
from training_gym.records.recorder import Recorder
from training_gym.records.results import (
    Exit,
    compose_result,
    read_result,
    write_exit,
    write_result,
)
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.records.status import list_runs, reconcile, run_status
from training_gym.spec.episodes import Counters


@pytest.fixture
def dead():
    """A process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(process.pid)
    process.communicate()
    return identity


def begin(run, attempt, runner=None):
    write_document(run.attempt(attempt) / "intent.json", {})
    if runner is not None:
        write_document(run.attempt(attempt) / "runner.json", runner)


def end(run, attempt=1, code=0, **fields):
    write_exit(run, Exit(attempt=attempt, exit_code=code, started_at=10.0, ended_at=12.5, **fields))


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_processes_have_identities(dead):
    me = this_process()
    assert is_alive(me) is True
    assert is_alive(dead) is False
    assert identify(dead.pid) is None
    assert is_alive(me.changed(started="12")) is False, "the id was given to another process"
    assert is_alive(me.changed(boot="other 1")) is False, "the machine was started anew"
    assert is_alive(me.changed(boot="other 1", host="elsewhere")) is None
    assert is_alive(me.changed(boot=me.boot.split()[0] + " 1")) is None, "another container"


def test_an_ended_child_that_nobody_waited_for_is_not_alive():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(process.pid)
    assert is_alive(identity)
    process.stdin.close()
    deadline = time.monotonic() + 20
    while is_alive(identity) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_alive(identity) is False
    process.wait()


def test_from_queued_to_the_result(run, dead):
    assert run_status(run) == "queued"
    begin(run, 1)
    assert run_status(run) == "queued"
    begin(run, 1, this_process())
    assert run_status(run) == "running"
    end(run, reason="done")
    write_result(run)
    assert run_status(run) == "completed"
    begin(run, 2)
    assert run_status(run) == "queued", "a later attempt makes the result void"
    begin(run, 2, dead)
    assert run_status(run) == "lost"


def test_an_intent_nobody_answered_is_lost_after_a_while(run):
    begin(run, 1)
    age(run.attempt(1) / "intent.json", module.LOST_AFTER_S + 1)
    assert run_status(run) == "lost"
    write_document(run.attempt(1) / "ref.json", {})
    assert run_status(run) == "queued", "a platform may let it wait for days"


def test_an_attempt_whose_launcher_died_before_the_answer_is_lost_soon(run, dead):
    intent = run.attempt(1) / "intent.json"
    for launcher, status in ((dead, "lost"), (this_process(), "queued")):
        write_document(intent, {"launcher": launcher.model_dump(mode="json")})
        assert run_status(run) == "queued", "the job may just have started"
        age(intent, module.ORPHANED_AFTER_S + 1)
        assert run_status(run) == status


def test_on_another_host_silence_decides(run):
    begin(run, 1, this_process().changed(host="elsewhere", boot="other 1"))
    assert run_status(run) == "running"
    age(run.attempt(1) / "runner.json", module.LOST_AFTER_S + 1)
    assert run_status(run) == "lost"
    with Recorder(run, writer="runner", attempt=1) as recorder:
        recorder.heartbeat()
    assert run_status(run) == "running"


def test_a_result_written_at_the_last_moment_counts(run, dead, monkeypatch):
    begin(run, 1, dead)

    def finish_while_asked(_):
        end(run)
        write_result(run)
        return False

    monkeypatch.setattr(module, "is_alive", finish_while_asked)
    assert run_status(run) == "completed"


def test_a_lost_run_gets_a_result(run, dead):
    begin(run, 1, dead)
    result = reconcile(run)
    assert result.status == "lost"
    assert "runs resume r1" in result.error.fix
    assert read_result(run) == result
    assert reconcile(run) == result


def test_a_running_one_gets_none(run):
    begin(run, 1, this_process())
    assert reconcile(run) is None
    assert not run.result_path.exists()


def test_a_runner_killed_between_exit_and_result(run, dead):
    begin(run, 1, dead)
    end(run, 1, code=0)
    write_document(run.attempt(1) / "summary.json", {"status": "completed", "steps": 7})
    assert run_status(run) == "lost"
    assert reconcile(run).status == "completed"
    assert run_status(run) == "completed"


def test_a_result_says_all_the_summary_said(run):
    begin(run, 1)
    begin(run, 2)
    end(run, 1, code=1)
    end(run, 2)
    summary = {
        "status": "completed",
        "steps": 20,
        "baseline": {"mean": 0.25},
        "final": {"mean": 0.5},
        "difference": {"low": 0.1, "high": 0.4},
        "checkpoint": {"path": "/c", "sha256": "ab"},
        "cost": {"usd": 0},
        "examples": [1],
    }
    write_document(run.attempt(2) / "summary.json", summary)
    result = compose_result(run)
    assert result.status == "completed"
    assert result.attempts == 2
    assert result.wall_s == 5.0
    assert (result.steps, result.baseline, result.final) == (20, {"mean": 0.25}, {"mean": 0.5})
    assert result.difference == {"low": 0.1, "high": 0.4}
    assert (result.checkpoint.path, result.checkpoint.sha256) == ("/c", "ab")
    assert (result.cost, result.details) == ({"usd": 0}, {"examples": [1]})


def test_without_a_summary_steps_and_checkpoint_come_from_the_records(run):
    begin(run, 1)
    end(run, code=1, reason="the engine exited with 1", last_lines=("RuntimeError: x", " "))
    with Recorder(run, writer="engine", attempt=1) as recorder:
        recorder.metrics({"a": 1}, Counters(batch=3))
    saved = write_checkpoint(run, 2, lambda folder: folder.joinpath("w").touch(), CheckpointInfo())
    result = compose_result(run)
    assert result.status == "failed"
    assert result.error.message == "the engine exited with 1: RuntimeError: x"
    assert "training-gym logs r1" in result.error.fix
    assert result.steps == 3
    assert result.checkpoint.sha256 == saved.sha256


@pytest.mark.parametrize(
    ("fields", "files", "status"),
    [
        ({}, {}, "failed"),
        ({"stopped_by": "stop"}, {}, "stopped"),
        ({}, {"summary": {"status": "completed"}}, "completed"),
        ({}, {"summary": {"status": "stopped"}}, "stopped"),
    ],
)
def test_an_engine_that_leaves_a_summary_has_not_come_to_its_end_without_one(
    run, fields, files, status
):
    begin(run, 1)
    write_document(run.attempt(1) / "job.json", {"leaves_summary": True})
    end(run, code=0, **fields)
    for name, content in files.items():
        write_document(run.attempt(1) / f"{name}.json", content)
    result = compose_result(run)
    assert result.status == status
    if status == "failed":
        assert "os._exit()" in result.error.fix


@pytest.mark.parametrize(
    ("code", "fields", "files", "status", "message"),
    [
        (0, {}, {}, "completed", None),
        (0, {"stopped_by": "stop"}, {}, "stopped", None),
        (0, {}, {"summary": {"status": "stopped"}}, "stopped", None),
        (143, {"stopped_by": "cancel", "reason": "cancelled"}, {}, "stopped", None),
        # What ends the process after its last word changes nothing.
        (143, {"stopped_by": "platform"}, {"summary": {"status": "completed"}}, "completed", None),
        (137, {"signal": "SIGKILL"}, {"summary": {"status": "completed"}}, "completed", None),
        (143, {"stopped_by": "stop"}, {"summary": {"status": "stopped"}}, "stopped", None),
        (3, {}, {"error": {"message": "no rows", "fix": "add some"}}, "failed", "no rows"),
        (3, {"stopped_by": "stop"}, {"error": {"message": "full", "fix": "x"}}, "failed", "full"),
        (137, {"signal": "SIGKILL", "reason": "killed"}, {}, "failed", "killed"),
    ],
)
def test_verdicts(run, code, fields, files, status, message):
    begin(run, 1)
    end(run, code=code, **fields)
    for name, content in files.items():
        write_document(run.attempt(1) / f"{name}.json", content)
    result = compose_result(run)
    assert result.status == status
    assert (result.error and result.error.message) == message
    if fields.get("signal") == "SIGKILL" and status == "failed":
        assert "memory" in result.error.fix


def test_a_list_of_runs_newest_first_with_damaged_ones(tmp_path, dead):
    runs = tmp_path / "runs"
    for number in range(3):
        manifest = Manifest(
            run_id=f"r{number}", created_at=number, run={"model": "tiny"}, tags=("a",)
        )
        begin(RunDirectory.create(runs / f"r{number}", manifest), 1, this_process())
    end(RunDirectory(runs / "r1"))
    write_result(RunDirectory(runs / "r1"))
    (runs / "broken").mkdir()
    (runs / "broken" / "manifest.json").write_text("{")
    (runs / "no-run").mkdir()
    (runs / ".hidden").mkdir()
    found = list_runs(runs)
    assert [(s.run_id, s.status) for s in found] == [
        ("r2", "running"),
        ("r1", "completed"),
        ("broken", "failed"),
        ("r0", "running"),
    ]
    assert (found[0].model, found[0].tags, found[0].result) == ("tiny", ("a",), None)
    assert found[1].result["status"] == "completed"
    assert found[2].problem
    assert list_runs(tmp_path / "absent") == []


def test_results_are_plain_documents(run):
    begin(run, 1)
    end(run)
    write_result(run)
    assert {"run_id", "status", "reason", "error", "attempts", "steps", "wall_s", "cost"} <= set(
        read_document(run.result_path)
    )
