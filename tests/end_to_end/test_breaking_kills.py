"""Killed at any moment, stopped once or twice, its checkpoint damaged: the same run in the end.

One run goes through all of it, attempt after attempt, and is compared bit for bit, without clocks,
with a run of the same definition that nobody disturbed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from training_gym.records.documents import read_document_if_any
from training_gym.records.processes import ProcessIdentity, is_alive
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory
from training_gym.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 30
LONG = (
    f"recipe.num_steps={STEPS}",
    "recipe.prompts_per_batch=2",
    "recipe.group_size=3",
    "recipe.max_response_tokens=6",
    "recipe.checkpoints.every=2",
    "recipe.checkpoints.keep=3",
)
EVALUATED = 'evals=[{"name": "held", "dataset": ROWS[:3], "every": 3}],'
SLOW = "if IN_JOB: time.sleep(0.03)\n    return round(varied(episode), 2)"
"""Costs time, not computation, so that there is a moment to be killed in; often equal."""


@pytest.fixture
def start(environment):
    """Start a command in the foreground, as a person at a terminal does."""
    started = []

    def run(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "training_gym.cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def reach(run, step, *, attempt):
    """Wait until an attempt has recorded a step of its own at or after `step`."""
    directory, deadline = RunDirectory(run.path), time.monotonic() + 150
    while time.monotonic() < deadline:
        records = read_stream(directory, "metrics") if directory.streams.exists() else []
        if any(r["attempt"] == attempt and r["batch"] >= step for r in records):
            return
        if max(directory.attempts(), default=0) >= attempt:
            assert run.status in ("queued", "running"), (run.status, run.result)
        time.sleep(0.05)
    raise AssertionError(f"attempt {attempt} did not reach step {step}")


def pid_of(run, attempt, role):
    document = read_document_if_any(run.path / "attempts" / str(attempt) / f"{role}.json")
    return ProcessIdentity.read(document)


def kill(run, attempt, role, moment):
    """SIGKILL at a random moment of a step; all processes of the attempt end."""
    time.sleep(moment.uniform(0.0, 0.4))
    os.kill(pid_of(run, attempt, role).pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    for each in ("runner", "engine"):
        while is_alive(pid_of(run, attempt, each)):
            assert time.monotonic() < deadline, f"the {each} lives on"
            time.sleep(0.05)


def the_run(home, known):
    """The run that has been launched since `known` was looked at."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        fresh = {p.name for p in (home / "runs").glob("[0-9]*")} - known
        if fresh:
            return Run(fresh.pop())
        time.sleep(0.05)
    raise AssertionError("nothing was launched")


def interrupted(process, run, *, times):
    """What a command says after Ctrl-C, once or twice."""
    known = set((run.path / "control").glob("*.json"))
    process.send_signal(signal.SIGINT)
    if times == 2:
        while set((run.path / "control").glob("*.json")) <= known:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert f"resume with: training-gym runs resume {run.id}" in err
    return json.loads(out), err


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_survives_everything_and_ends_the_same(command, start, home, define, trained, seed):
    moment = random.Random(seed)
    file = define(reward=SLOW, more=EVALUATED)
    sets = [part for given in LONG for part in ("--set", given)]
    undisturbed = command("train", file, *sets, "--detach")
    assert undisturbed.code == 0, undisturbed.err
    reference = Run(undisturbed.out.strip())

    # The launcher is killed: the run goes on. Then its engine is.
    known = {p.name for p in (home / "runs").glob("[0-9]*")}
    launcher = start("train", file, *sets)
    run = the_run(home, known)
    reach(run, 2 + moment.randrange(2), attempt=1)
    launcher.kill()
    launcher.wait()
    reach(run, 5 + moment.randrange(2), attempt=1)
    kill(run, 1, "engine", moment)
    assert run.wait(30).status == "failed"
    waited = command("runs", "wait", run.id)
    assert waited.code == 20, waited.err
    assert "killed by SIGKILL" in waited.two_lines

    # The definition's file is gone by now: a resume takes the source that was launched.
    file.unlink()

    # The job runner is killed: the engine does not outlive it.
    assert command("runs", "resume", run.id, "--detach").code == 0
    reach(run, 9 + moment.randrange(2), attempt=2)
    kill(run, 2, "runner", moment)
    waited = command("runs", "wait", run.id)
    assert waited.code == 22, waited.err
    assert f"training-gym runs resume {run.id}" in waited.two_lines

    # Ctrl-C once: the step is finished and kept.
    resuming = start("runs", "resume", run.id, "--json")
    reach(run, 13, attempt=3)
    told, err = interrupted(resuming, run, times=1)
    assert told["status"] == "stopped"
    assert "then saving a checkpoint" in err
    assert told["checkpoint"] == str(run.checkpoints()[-1].folder)
    assert run.checkpoints()[-1].counters.batch == told["steps"]

    # Ctrl-C twice: at once, and what came after the last checkpoint is lost.
    resuming = start("runs", "resume", run.id, "--json")
    reach(run, told["steps"] + 3, attempt=4)
    told, err = interrupted(resuming, run, times=2)
    assert told["status"] == "stopped"
    assert "stopping at once" in err

    # The newest checkpoint is damaged: the one before it is taken, and that is said.
    *_, before, newest = run.checkpoints()
    flip(newest.folder / "model.safetensors")
    resumed = command("runs", "resume", run.id, "--json")
    assert resumed.code == 0, resumed.err
    assert f"{newest.folder / 'model.safetensors'} does not match its hash" in resumed.err
    assert f"resuming from the one before it, of step {before.step}" in resumed.err
    assert json.loads(resumed.out)["status"] == "completed"

    assert reference.wait(120).status == "completed"
    expected, found = trained(RunDirectory(reference.path)), trained(RunDirectory(run.path))
    assert [metrics[0] for metrics in found.metrics] == list(range(1, STEPS + 1))
    assert found.metrics == expected.metrics
    assert found.evaluations == expected.evaluations
    assert found.episodes == expected.episodes
    assert found.weights == expected.weights
    assert found.optimizer == expected.optimizer

    refused = command("runs", "resume", run.id)
    assert refused.code == 10
    assert "has completed" in refused.two_lines
