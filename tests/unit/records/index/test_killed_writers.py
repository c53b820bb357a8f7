"""Eight writers killed at random: every acknowledged record is indexed."""

import os
import random
import signal
import subprocess
import sys
import textwrap

import pytest

from training_gym.records.index import Index, SeriesQuery

WRITER = """
    import sys
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
            print(number, flush=True)
"""


@pytest.mark.slow
def test_every_acknowledged_record_of_killed_writers_is_indexed(index, new_run):
    run, random_ = new_run(), random.Random(1)
    script = textwrap.dedent(WRITER)
    writers = {
        f"w{number}": subprocess.Popen(
            [sys.executable, "-c", script, str(run.path), f"w{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    }
    acknowledged = {}
    for name in random_.sample(sorted(writers), 8):
        process = writers[name]
        for _ in range(random_.randint(1, 20)):
            acknowledged[name] = int(process.stdout.readline())
        index.refresh("r1")
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        acknowledged[name] = max([acknowledged[name], *map(int, rest[:-1])])
        process.stdout.close()
        process.wait()
    found = index.series(("r1",), SeriesQuery(names=("count/*",), max_points=100_000))
    kept = {series.name.removeprefix("count/"): series.mean for series in found}
    for name, number in acknowledged.items():
        assert kept[name][:number] == tuple(range(1, number + 1))
    again = Index(index.folder, index.folder.parent / "cache2")
    assert again.series(("r1",), SeriesQuery(names=("count/*",), max_points=100_000)) == found
