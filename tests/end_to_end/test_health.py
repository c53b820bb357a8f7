"""Real jobs that are ill, held and stuck: what their own files say of it while they run."""

import os
import signal
import time

import pytest

from training_gym.records.documents import read_document
from training_gym.records.health import assess, replay
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE_S = 280
SILENT = (
    "health={'thresholds': {'stall_floor_s': 15, 'heartbeat_s': {'warning': 15, 'critical': 60}}},"
)


@pytest.fixture
def launched(define, training_gym, home):
    """Start a run that goes on by itself; its directory."""
    made = []

    def start(*sets, **definition):
        arguments = [part for given in sets for part in ("--set", given)]
        done = training_gym("train", define(**definition), "--detach", *arguments)
        assert done.code == 0, done.err
        run_id = done.out.split()[-1]
        made.append(run_id)
        return RunDirectory(home / "runs" / run_id)

    yield start
    for run_id in made:
        training_gym("runs", "stop", run_id, "--now")


def wait_for(condition, what):
    until = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until, what
        time.sleep(0.2)
    return found


def kinds(run):
    return [event["kind"] for event in read_stream(run, "events")]


def alerts(run):
    return {alert.rule: alert for alert in assess(run).alerts}


def test_a_run_tells_while_it_trains_that_it_learns_nothing_and_stops_if_told_so(launched):
    run = launched(
        "recipe.num_steps=500",
        reward="return 0.0",
        more="health={'actions': {'zero_variance': 'stop'}},",
    )
    wait_for(lambda: run.result_path.exists(), "the run was not stopped")
    assert read_document(run.result_path)["status"] == "stopped"
    found = alerts(run)["zero_variance"]
    assert found.severity == "critical"
    assert "health_acted" in kinds(run)
    recorded = {a["id"]: a["state"] for a in read_stream(run, "alerts") if "id" in a}
    assert recorded == {alert.id: alert.state for alert in replay(run)}


def test_a_run_can_be_held_and_go_on(launched, training_gym):
    run = launched("recipe.num_steps=400")
    wait_for(lambda: len(read_stream(run, "metrics")) > 2, "no steps")
    assert training_gym("runs", "pause", run.run_id).code == 0
    wait_for(lambda: "paused" in kinds(run), "it was not held")
    held = len(read_stream(run, "metrics"))
    assert "aused" in assess(run).verdict.sentence  # alone, or behind what else is wrong
    time.sleep(2)
    assert len(read_stream(run, "metrics")) == held
    assert training_gym("runs", "resume", run.run_id, "--detach").code == 0
    wait_for(lambda: len(read_stream(run, "metrics")) > held, "it did not go on")
    assert kinds(run).count("unpaused") == 1
    assert training_gym("runs", "pause", run.run_id).code == 0
    wait_for(lambda: kinds(run).count("paused") == 2, "it was not held again")
    assert training_gym("runs", "stop", run.run_id).code == 0
    wait_for(lambda: run.result_path.exists(), "a paused run cannot be stopped")


def test_the_watchdog_names_a_reward_that_hangs(launched):
    reward = "time.sleep(90 if episode.counters.batch == 4 else 0); return varied(episode)"
    sets = ("recipe.num_steps=9", "recipe.reward_timeout_s=120")
    run = launched(*sets, reward=reward, more=SILENT)

    def is_named():
        found = alerts(run).get("stall")
        return found is not None and found.details["component"] == "reward"

    wait_for(is_named, "nobody noticed, or another component was named")


def test_an_engine_that_is_stopped_by_the_system_is_alive_but_silent(launched):
    run = launched("recipe.num_steps=4000", more=SILENT)
    wait_for(lambda: len(read_stream(run, "metrics")) > 2, "no steps")
    pid = read_document(run.attempt(1) / "engine.json")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        found = wait_for(lambda: alerts(run).get("heartbeat"), "nobody noticed")
        assert "engine is alive but silent" in found.message
    finally:
        os.kill(pid, signal.SIGCONT)
