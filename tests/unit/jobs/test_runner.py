import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training_gym.jobs import runner as module
from training_gym.jobs.control import acknowledged, request
from training_gym.jobs.inside import main
from training_gym.jobs.leash import kill_processes, processes_of
from training_gym.jobs.source import pack
from training_gym.records.processes import identify
from training_gym.records.readers import read_stream
from training_gym.records.results import read_exit, read_result
from training_gym.records.status import run_status
from training_gym.spec.job import NodeGroup
from training_gym.testing.fake_engine import tiny_job

ENDLESS = ("--steps", "1000000", "--step-s", "0.05")


def shell(script, **fields):
    return tiny_job("r1").changed(groups=(NodeGroup(command=("sh", "-c", script)),), **fields)


def begun(run, attempt=1):
    """Ids of the tiny engine's processes, once it trains."""
    path = run.attempt(attempt) / "pids.json"
    ready = (run.attempt(attempt) / "ready").exists()
    return json.loads(path.read_text())["pids"] if ready else []


def kinds(run):
    """Of the runner's own events; health is watched by a writer of its own."""
    return [e["kind"] for e in read_stream(run, "events") if e["kind"] != "health_started"]


def test_events_heartbeat_logs_and_files_of_a_plain_run(run, run_here):
    assert run_here() == 0
    assert kinds(run) == ["engine_started", "attempt_ended"]
    assert read_stream(run, "heartbeat")[0]["phase"] == "running"
    said = [record["text"] for record in read_stream(run, "logs")]
    assert said == ["attempt 1 begins", "step 1 of attempt 1", "step 2 of attempt 1"]
    assert read_exit(run, 1).reason == "finished"
    assert run_status(run) == "completed"
    assert read_result(run).wall_s > 0


def test_the_command_is_filled_in_and_runs_in_the_source(run, run_here):
    source, sha256 = pack({"data.txt": b"words"})
    run.source_archive.write_bytes(source)
    command = ("sh", "-c", "echo {run}; {python} -c 'print(open(\"data.txt\").read())'")
    job = shell("").changed(groups=(NodeGroup(command=command),), source_sha256=sha256)
    assert run_here(job=job) == 0
    assert [r["text"] for r in read_stream(run, "logs")] == [str(run.path), "words"]


def test_the_runner_has_no_variables_of_a_job_around_it(run, run_here, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_RUN", "/outer")
    monkeypatch.setenv("TRAINING_GYM_ATTEMPT", "7")
    job = shell('echo "$TRAINING_GYM_RUN $TRAINING_GYM_ATTEMPT"')
    assert run_here(job=job) == 0
    assert read_stream(run, "logs")[0]["text"] == f"{run.path} 1"


@pytest.mark.parametrize(
    ("fields", "word", "code"),
    [
        ({"source_sha256": "0" * 64}, "No such file", 2),
        ({"groups": (NodeGroup(command=("no-such-command",)),)}, "cannot start", 9),
        ({"secrets": ("ABSENT_TOKEN",)}, "ABSENT_TOKEN", 10),
    ],
)
def test_what_cannot_start_ends_in_two_lines(run, run_here, fields, word, code):
    assert run_here(**fields, max_restarts=2) == code
    result = read_result(run)
    assert result.status == "failed"
    assert word in result.error.message
    assert result.error.fix
    assert (result.attempts, read_exit(run, 1).exit_code) == (1, code)


def test_a_job_that_cannot_be_read_is_said(run, capsys):
    assert main(["--run", str(run.path), "--attempt", "1"]) == 11
    assert "there is no" in capsys.readouterr().err


def test_a_killed_engine_has_an_exit_file_with_the_signal(run, run_here):
    assert run_here(job=shell("echo oops >&2; kill -9 $$")) == 137
    ending = read_exit(run, 1)
    assert (ending.signal, ending.stopped_by, ending.last_lines) == ("SIGKILL", None, ("oops",))
    assert "memory" in read_result(run).error.fix


def test_the_runner_survives_the_terminals_end_and_ends_on_sigterm(run, start, eventually):
    runner = start(*ENDLESS)
    eventually(lambda: begun(run))
    os.kill(runner.pid, signal.SIGHUP)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.wait(60) == 143
    ending = read_exit(run, 1)
    assert (ending.stopped_by, ending.signal) == ("platform", "SIGTERM")
    assert read_result(run).status == "stopped"


def test_sigint_stops_gently(run, start, eventually):
    runner = start(*ENDLESS)
    eventually(lambda: begun(run))
    os.kill(runner.pid, signal.SIGINT)
    assert runner.wait(60) == 0
    assert read_exit(run, 1).stopped_by == "stop"


def test_an_engine_that_does_not_stop_in_time_is_ended(run, start, eventually):
    runner = start(*ENDLESS, "--ignore-signals", stop_grace_s=0.2)
    eventually(lambda: begun(run))
    request(run, "stop")
    assert runner.wait(60) == 137
    assert read_exit(run, 1).stopped_by == "stop"
    assert read_result(run).status == "stopped"


def test_requests_that_cannot_be_met_are_refused_and_old_ones_expire(run, start, eventually):
    old = request(run, "stop")
    path = next(run.control.iterdir())
    path.write_text(path.read_text().replace('"requested_at": ', '"requested_at": -'))
    runner = start(*ENDLESS, signals={"stop": "SIGINT"})
    eventually(lambda: begun(run))
    unknown = request(run, "checkpoint")
    eventually(lambda: unknown in acknowledged(run))
    stop = request(run, "stop")
    assert runner.wait(60) == 0
    outcomes = {old: "expired", unknown: "refused", stop: "delivered"}
    assert acknowledged(run) == outcomes
    assert [e["reason"] for e in read_stream(run, "events") if "outcome" in e][-1] == "SIGINT"


def test_an_early_checkpoint_request_waits_for_the_engine(run, start, eventually):
    # A signal sent before the handler is set would kill it.
    script = (
        "sleep 0.5; trap 'echo saved; exit 0' USR1; touch {run}/attempts/1/ready; sleep 30 & wait"
    )
    runner = start(job=shell(script))
    eventually(lambda: kinds(run))
    request(run, "checkpoint")
    assert runner.wait(60) == 0
    assert [r["text"] for r in read_stream(run, "logs")] == ["saved"]


def test_a_stop_between_attempts_prevents_the_next(run, start, eventually):
    runner = start(job=shell("exit 1", max_restarts=9))
    eventually(lambda: run.attempt(3).exists())
    asked = request(run, "stop")
    runner.wait(60)
    assert acknowledged(run) == {asked: "delivered"}
    assert read_result(run).status == "stopped"
    assert read_exit(run, max(run.attempts())).next_attempt is None


def test_restarts_wait_longer_and_longer():
    delays = [module._delay_s(restart) for restart in (1, 2, 3, 4, 20)]
    assert delays == [0, 1, 2, 4, 60]


def test_an_attempt_has_one_runner(run, run_here, capsys):
    assert run_here() == 0
    assert run_here() == 0
    assert "has a runner already" in capsys.readouterr().err
    assert kinds(run) == ["engine_started", "attempt_ended"]


def test_with_the_runner_killed_the_engine_dies(run, start, eventually):
    runner = start(*ENDLESS, "--spawn")
    eventually(lambda: begun(run))
    pids = begun(run)
    runner.kill()
    eventually(lambda: not any(identify(pid) for pid in pids))
    assert run_status(run) == "lost"


def command_line(folder):
    """Of a process that may end meanwhile."""
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_the_next_attempt_reaps_what_outlived_runner_and_leash(run, start, eventually):
    runner = start(*ENDLESS, "--spawn")
    eventually(lambda: begun(run))
    pids = begun(run)
    leash = next(
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if b"leash.py\0" + str(run.path).encode() in command_line(folder)
    )
    os.kill(leash, signal.SIGKILL)
    runner.kill()
    runner.wait()
    assert all(identify(pid) for pid in pids)
    assert start("--steps", "1", attempt=2).wait(60) == 0
    assert not any(identify(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_processes_of_a_run_are_known_by_their_environment(tmp_path):
    env = {**os.environ, "TRAINING_GYM_RUN": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 20
    while not processes_of(str(tmp_path)):  # a program that just begins has no environment yet
        assert time.monotonic() < deadline
    assert processes_of(str(tmp_path)) == [process.pid]
    assert processes_of(str(tmp_path / "other")) == []
    assert kill_processes(str(tmp_path)) == [process.pid]
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert kill_processes(str(tmp_path)) == []
