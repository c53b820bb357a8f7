import os
import signal
import subprocess
import sys
import time
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from training_gym.jobs.inside import main
from training_gym.records.documents import write_document
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.testing.fake_engine import tiny_job


@pytest.fixture
def run(tmp_path):
    manifest = Manifest(run_id="r1", created_at=1.0, run={"model": "tiny"})
    return RunDirectory.create(tmp_path / "runs" / "r1", manifest)


@pytest.fixture
def start(run):
    """Start a job runner in the foreground of a test, on any job."""
    started = []

    def start(*arguments, job=None, attempt=1, **fields):
        job = job or tiny_job("r1", *arguments, attempt=attempt).changed(**fields)
        write_document(run.attempt(attempt) / "job.json", job)
        command = [sys.executable, "-P", "-m", "training_gym.jobs.inside"]
        process = subprocess.Popen(
            [*command, "--run", str(run.path), "--attempt", str(attempt)],
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run_here(run):
    """Run a job to its end in this process, which is quicker; returns the exit code."""
    handlers = {number: signal.getsignal(number) for number in (SIGHUP, SIGINT, SIGTERM)}
    environ = dict(os.environ)

    def run_here(*arguments, job=None, attempt=1, **fields):
        job = job or tiny_job("r1", *arguments, attempt=attempt).changed(**fields)
        write_document(run.attempt(attempt) / "job.json", job)
        return main(["--run", str(run.path), "--attempt", str(attempt)])

    yield run_here
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(environ)


@pytest.fixture
def eventually():
    def eventually(look):
        deadline = time.monotonic() + 30
        while not look():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    return eventually
