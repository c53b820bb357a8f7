"""A run that ships to a collector elsewhere, while each process between them is killed.

Everything is as people have it: `train`, its job runner and engine, `collect` with the run's write
token, `sync --follow` as a shipper of its own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training_gym.records.index import Index, SeriesQuery
from training_gym.records.readers import read_episodes, read_stream
from training_gym.records.run_directory import RunDirectory

TUTORIALS = Path(__file__).parents[2] / "tutorials"
SETS = (
    *("recipe.num_steps=2000", "recipe.prompts_per_batch=2", "recipe.group_size=2"),
    *("recipe.max_response_tokens=4", "evals.held_out.dataset.limit=1", "evals.held_out.samples=1"),
)
STREAMS = ("metrics", "spans", "tokens", "logs", "events", "alerts", "evaluations", "heartbeat")
PATIENCE_S = 240


class Machine:
    """A home, and the processes that were started in it."""

    def __init__(self, home, environment):
        self.home = home
        self.environment = {**environment, "TRAINING_GYM_HOME": str(home)}
        self.running = []

    def start(self, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "training_gym.cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
        )
        self.running.append(process)
        return process

    def say(self, *arguments):
        """The first object that a command writes, which must end well."""
        process = self.start(*arguments, "--json")
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, arguments
        return json.loads(out.splitlines()[0])

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        self.running.remove(process)

    def run(self, run_id):
        return RunDirectory(self.home / "runs" / run_id)


@pytest.fixture
def machines(home, tmp_path, environment):
    """Where the run trains, and where its records are collected."""
    both = Machine(home, environment), Machine(tmp_path / "there", environment)
    yield both
    for machine in both:
        for process in list(machine.running):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            machine.kill(process)


def until(holds, what):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def batches(run):
    return max((record["batch"] or 0 for record in read_stream(run, "metrics")), default=0)


def keys(run, stream):
    """Who wrote each record of a stream, and which it is."""
    return [
        (line["writer"], line["attempt"], line["seq"])
        for path in sorted((run.streams / stream).glob("*.jsonl"))
        for line in map(json.loads, path.read_text().splitlines())
    ]


def assert_the_same(here, there, cache):
    for stream in (*STREAMS, "episodes"):
        sent, taken = keys(here, stream), keys(there, stream)
        assert sorted(taken) == sorted(set(sent)), stream
    for stream in set(STREAMS) - {"tokens"}:
        mine, yours = (list(read_stream(run, stream, show_hidden=True)) for run in (here, there))
        assert mine == yours, stream
    assert list(read_episodes(here)) == list(read_episodes(there))  # the tokens' checksums hold
    curves = [
        Index(run.path.parent, cache / name).series((run.run_id,), SeriesQuery(names=("*",)))
        for name, run in (("here", here), ("there", there))
    ]
    assert curves[0] == curves[1]


@pytest.mark.slow
def test_every_record_arrives_once_whoever_is_killed(machines, tiny, tmp_path):
    pytest.importorskip("uvicorn")
    here, there = machines
    collector = there.start("collect", "--port", 0, "--json")
    told = json.loads(collector.stdout.readline())
    port = told["url"].rpartition(":")[2]
    here.environment["TRAINING_GYM_COLLECTOR"] = told["url"]
    here.environment["TRAINING_GYM_COLLECTOR_TOKEN"] = told["key"]
    sets = [part for value in (f"model={tiny}", *SETS) for part in ("--set", value)]
    run_id = here.say("train", TUTORIALS / "haiku.py", *sets, "--detach")["run_id"]
    run, copy = here.run(run_id), there.run(run_id)
    until(lambda: batches(copy) > 2, "nothing reached the collector")

    def goes_on(what):
        before = batches(run)
        until(lambda: batches(run) > before + 5, f"training waits for {what}")

    def arrives(batch):
        until(lambda: batches(copy) > batch, "nothing more reached the collector")

    there.kill(collector)
    goes_on("a collector that was killed")
    collector = there.start("collect", "--port", port, "--json")
    collector.stdout.readline()
    arrives(batches(run))
    collector.send_signal(signal.SIGSTOP)
    goes_on("a collector that says nothing")
    collector.send_signal(signal.SIGCONT)
    for _ in range(2):
        shipper = here.start("sync", run_id, "--to", "collector", "--follow", "--json")
        arrives(batches(copy))
        here.kill(shipper)

    os.kill(json.loads((run.attempt(1) / "runner.json").read_text())["pid"], signal.SIGKILL)
    until(lambda: here.say("runs", "show", run_id)["status"] == "lost", "the run is not lost")
    here.say("runs", "resume", run_id, "--detach")
    until(lambda: any(r["attempt"] == 2 for r in read_stream(run, "metrics")), "no second attempt")
    there.kill(collector)
    here.say("runs", "stop", run_id)
    until(lambda: here.say("runs", "show", run_id)["status"] == "stopped", "the run goes on")
    collector = there.start("collect", "--port", port, "--json")
    collector.stdout.readline()
    here.say("sync", run_id, "--to", "collector")
    assert_the_same(run, copy, tmp_path)
    assert json.loads(copy.result_path.read_text()) == json.loads(run.result_path.read_text())
    assert there.say("runs", "show", run_id)["status"] == "stopped"
