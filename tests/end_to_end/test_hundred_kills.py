"""SIGKILL at a hundred random moments of a short run: a hundred resumed runs with the same bits."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from training_gym.records.run_directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

KILLS = int(os.environ.get("KILLS", "100"))
SETS = (
    "recipe.num_steps=6",
    "recipe.prompts_per_batch=2",
    "recipe.group_size=3",
    "recipe.max_response_tokens=6",
    "recipe.checkpoints.every=1",
    "recipe.checkpoints.keep=2",
)
EVALUATED = 'evals=[{"name": "held", "dataset": ROWS[:2], "every": 2}],'


@pytest.fixture(scope="module")
def attempts():
    """Play one attempt in a process of its own: `attempts(run, number, kill_after_s)`."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    def attempt(run, number, kill_after_s=None):
        asked = {"run": str(run.path), "attempt": number, "kill_after_s": kill_after_s}
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())

    yield attempt
    server.communicate()


@pytest.fixture
def launched(define, prepared_run):
    return prepared_run(define(more=EVALUATED), *SETS)


def copy_of(run, place):
    copy = RunDirectory(place / run.run_id)
    shutil.copytree(run.path, copy.path)
    return copy


def test_killed_at_any_moment_a_run_ends_with_the_same_bits(launched, attempts, trained, tmp_path):
    reference = copy_of(launched, tmp_path / "reference")
    undisturbed = attempts(reference, 1)
    assert undisturbed["code"] == 0
    expected = trained(reference)
    moments, kills = random.Random(0), 0
    while kills < KILLS:
        run = copy_of(launched, tmp_path / "killed")
        moment = moments.uniform(0, undisturbed["seconds"])
        first = attempts(run, 1, moment)
        if first["killed"]:
            kills += 1
            assert attempts(run, 2)["code"] == 0, f"killed after {moment} s"
        assert trained(run) == expected, f"killed after {moment} s"
        shutil.rmtree(run.path)
