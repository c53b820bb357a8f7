"""A run over two processes, in real jobs: repeated bit for bit, also when it is killed between."""

import os
import signal
import time

import psutil
import pytest

from training_gym.records.documents import read_document_if_any
from training_gym.records.processes import ProcessIdentity
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory
from training_gym.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SETS = (
    "recipe.engine.data_parallel=2",
    "recipe.engine.device=cpu",
    "recipe.num_steps=4",
    "recipe.max_response_tokens=6",
    "recipe.checkpoints.every=1",
)


def reach(run, step):
    directory, deadline = RunDirectory(run.path), time.monotonic() + 300
    while time.monotonic() < deadline:
        records = read_stream(directory, "metrics") if directory.streams.exists() else []
        if any(record["batch"] >= step for record in records):
            return
        time.sleep(0.05)
    raise AssertionError(f"step {step} was not reached")


def process_of(run, role):
    document = read_document_if_any(run.path / "attempts" / "1" / f"{role}.json")
    return psutil.Process(ProcessIdentity.read(document).pid)


def test_killed_and_resumed_over_two_processes(define, command, trained):
    file = define(reward="if IN_JOB: time.sleep(0.1)\n    return varied(episode)")
    sets = [part for given in SETS for part in ("--set", given)]
    runs = []
    for disturbed in (False, True):
        done = command("train", file, *sets, "--detach")
        assert done.code == 0, done.err
        run = Run(done.out.strip())
        runs.append(run)
        if disturbed:
            reach(run, 2)
            leader = process_of(run, "engine")
            others = [p for p in leader.children() if "follower" in " ".join(p.cmdline())]
            assert len(others) == 1
            os.kill(leader.pid, signal.SIGKILL)
            _, alive = psutil.wait_procs(others, timeout=30)
            assert not alive
            assert run.wait(60).status == "failed"
            assert command("runs", "resume", run.id, "--detach").code == 0
        assert run.wait(300).status == "completed", run.result
    quiet, killed = (trained(RunDirectory(run.path)) for run in runs)
    assert quiet == killed
