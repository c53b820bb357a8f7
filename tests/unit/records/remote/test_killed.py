"""Writers, shipper and collector in processes of their own, all killed at random moments.

Whatever a writer was told is recorded must be in the collector's index in the end.
"""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from training_gym.records import remote
from training_gym.records.index import Index, SeriesQuery
from training_gym.records.run_directory import Manifest, RunDirectory

WRITER = """
    import sys, time
    from pathlib import Path
    from training_gym.records.recorder import Recorder
    from training_gym.records.run_directory import RunDirectory
    from training_gym.spec.episodes import Counters

    run, name = RunDirectory(Path(sys.argv[1])), sys.argv[2]
    recorder = Recorder(run, writer=name, attempt=1)
    for number in range(1, 1_000_000):
        recorder.metrics({f"count/{name}": number}, Counters(batch=number))
        if number % 5 == 0:
            recorder.flush()
            time.sleep(0.05)  # eight of them share this machine with what takes their records
            print(number, flush=True)
"""
SHIPPER = """
    import sys, threading
    from pathlib import Path
    from training_gym.records import remote
    from training_gym.records.run_directory import RunDirectory

    remote.shipper.PAUSE_S = remote.shipper.LONGEST_PAUSE_S = 0.05
    run = RunDirectory(Path(sys.argv[1]))
    print("ships", flush=True)
    remote.Shipper(run, remote.Link.of(run)).run_until(threading.Event())
"""


class Processes:
    """What runs, so that all of it ends with the test."""

    def __init__(self, home):
        self.home = home
        self.running = []

    def start(self, *arguments):
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRAINING_GYM_HOME": str(self.home)},
        )
        self.running.append(process)
        return process

    def collector(self, port=0):
        command = ["-m", "training_gym.cli", "collect", "--json", "--port", str(port)]
        process = self.start(*command)
        return process, json.loads(process.stdout.readline())

    def kill(self, process):
        """As the system kills it; what it still managed to say."""
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        process.wait()
        self.running.remove(process)
        return rest


@pytest.fixture
def processes(tmp_path):
    made = Processes(tmp_path / "there")
    yield made
    for process in list(made.running):
        made.kill(process)


@pytest.mark.slow
def test_what_killed_writers_were_told_is_recorded_reaches_the_collector(processes, tmp_path):
    pytest.importorskip("uvicorn")
    chance = random.Random(2)
    collector, said = processes.collector()
    port = int(said["url"].rpartition(":")[2])
    manifest = Manifest(run_id="r1", created_at=1.0e9, run={"model": "m", "recipe": {}})
    run = RunDirectory.create(tmp_path / "here" / "r1", manifest)
    remote.register(manifest, said["url"], said["key"]).keep(run)
    shipping = ["-c", textwrap.dedent(SHIPPER), str(run.path)]
    shipper = processes.start(*shipping)
    script = textwrap.dedent(WRITER)
    writers = {
        f"w{number}": processes.start("-c", script, str(run.path), f"w{number}")
        for number in range(8)
    }
    acknowledged = {}
    for turn, name in enumerate(chance.sample(sorted(writers), 8)):
        for _ in range(chance.randint(1, 10)):
            acknowledged[name] = int(writers[name].stdout.readline())
        if turn % 3 == 0:
            processes.kill(collector)
        if turn % 3 == 1:
            processes.kill(shipper)
        rest = processes.kill(writers[name]).split()
        acknowledged[name] = max([acknowledged[name], *map(int, rest[:-1])])
        if turn % 3 == 0:
            collector, _ = processes.collector(port)
        if turn % 3 == 1:
            shipper = processes.start(*shipping)
            assert shipper.stdout.readline() == "ships\n"
    with closing(remote.Shipper(run, remote.Link.of(run))) as last:
        last.ship()
    index = Index(processes.home / "runs", tmp_path / "cache")
    query = SeriesQuery(names=("count/*",), max_points=100_000)
    found = index.series(("r1",), query)
    kept = {series.name.removeprefix("count/"): series.mean for series in found}
    for name, number in acknowledged.items():
        assert kept[name][:number] == tuple(range(1, number + 1))
    here = Index(tmp_path / "here", tmp_path / "cache-here")
    assert here.series(("r1",), query) == found
