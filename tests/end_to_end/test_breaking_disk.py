"""A disk that fills up while a run trains: told, nothing destroyed, and it goes on after."""

import contextlib
import json
import os
import time

import pytest

from training_gym.records.checkpoints import latest_valid, verify
from training_gym.records.run_directory import RunDirectory
from training_gym.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETS = ("recipe.num_steps=40", "recipe.checkpoints.every=2", "recipe.checkpoints.keep=3")
SLOW = "if IN_JOB: time.sleep(0.03)\n    return varied(episode)"


def fill(place):
    """Leave not a byte."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(place).f_bavail == 0


def await_checkpoint(run):
    deadline = time.monotonic() + 120
    while not run.checkpoints():
        assert run.status in ("queued", "running"), run.result
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_full_disk_ends_the_run_and_it_resumes_once_there_is_room(
    command, define, small_disk, monkeypatch
):
    place = small_disk(160)
    monkeypatch.setenv("TRAINING_GYM_HOME", str(place))
    sets = [part for given in SETS for part in ("--set", given)]
    launched = command("train", define(reward=SLOW), *sets, "--detach")
    assert launched.code == 0, launched.err
    run = Run(launched.out.strip())
    await_checkpoint(run)
    fill(place)

    waited = command("runs", "wait", run.id, "--timeout", "120")
    assert waited.code in (11, 12), waited.err
    assert "No space left on device" in waited.two_lines
    assert "free some space on that disk" in waited.two_lines
    assert run.status == "failed"
    directory = RunDirectory(run.path)
    kept, problems = latest_valid(directory)
    assert problems == []
    assert kept.step >= 2
    for checkpoint in run.checkpoints():
        assert verify(checkpoint) == []

    (place / "filler").rename(place / "first")
    fill(place)  # what the end of the attempt gave back
    refused = command("runs", "resume", run.id, "--detach")
    assert refused.code == 11, refused.err
    assert "No space left on device" in refused.two_lines
    assert run.status == "failed"

    (place / "filler").unlink()
    (place / "first").unlink()
    resumed = command("runs", "resume", run.id, "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["steps"] == 40
    assert directory.attempts() == [1, 2]
    assert [record["batch"] for record in run.metrics()] == list(range(1, 41))
