import os
import subprocess
import sys
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Done:
    """What a command in a process of its own left behind."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def training_gym(home):
    """Run the command line in a process of its own, with one thread and a home of its own."""
    environment = {**os.environ, "TRAINING_GYM_HOME": str(home), "OMP_NUM_THREADS": "1"}

    def run(*arguments, **options):
        done = subprocess.run(
            [sys.executable, "-m", "training_gym.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=240,
            check=False,
            **options,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def tiny(home):
    from training_gym.models.weights.tiny import tiny_model

    return tiny_model(home / "tiny")
